export { assert, present } from './assert.ts';
export { type ErrorCode, errorStatus, shortened, UserError } from './errors.ts';
