export { assert, present } from './assert.ts';
export { type ErrorCode, errorStatus, UserError } from './errors.ts';
