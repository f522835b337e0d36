import { describe, expect, it } from 'vitest';
import { modelTypes } from '../checkpoint/index.ts';
import { loaders } from './registry.ts';

describe('the registry of model types', () => {
  it('computes every type that checkpoints are read for, and no other', () => {
    expect(Object.keys(loaders).sort()).toEqual([...modelTypes].sort());
  });
});
