/**
 * Buffers of the reference back-end: one ArrayBuffer each, seen as fp32 or int32. Every access goes through here, so a
 * freed buffer, a buffer of another back-end or a range past the end is an error and never a wrong number.
 */
import { assert } from '../../util/index.ts';
import type { Buffer } from '../backend.ts';

export class Memory {
  readonly #views = new Map<number, { f32: Float32Array; i32: Int32Array }>();
  #nextId = 1;
  #closed = false;

  alloc(count: number): Buffer {
    this.checkOpen();
    assert(Number.isSafeInteger(count) && count >= 0, `alloc of ${count} values`);
    const bytes = new ArrayBuffer(count * 4);
    const id = this.#nextId++;
    this.#views.set(id, { f32: new Float32Array(bytes), i32: new Int32Array(bytes) });
    return Object.freeze({ id, bytes: bytes.byteLength });
  }

  free(buffer: Buffer): void {
    this.checkOpen();
    assert(this.#views.delete(buffer.id), `buffer ${buffer.id} is live`);
  }

  /** The first `count` values. */
  f32(buffer: Buffer, count: number): Float32Array {
    return this.#view(buffer, count).f32.subarray(0, count);
  }

  i32(buffer: Buffer, count: number): Int32Array {
    return this.#view(buffer, count).i32.subarray(0, count);
  }

  read(src: Buffer, from: number, dst: Float32Array | Int32Array): void {
    const view = this.#view(src, from + dst.length);
    const values = dst instanceof Float32Array ? view.f32 : view.i32;
    dst.set(values.subarray(from, from + dst.length));
  }

  write(dst: Buffer, from: number, values: Float32Array | Int32Array): void {
    const view = this.#view(dst, from + values.length);
    (values instanceof Float32Array ? view.f32 : view.i32).set(values, from);
  }

  checkOpen(): void {
    assert(!this.#closed, 'the back-end is open');
  }

  close(): void {
    this.#views.clear();
    this.#closed = true;
  }

  #view(buffer: Buffer, end: number): { f32: Float32Array; i32: Int32Array } {
    this.checkOpen();
    const view = this.#views.get(buffer.id);
    assert(view !== undefined, `buffer ${buffer.id} is live`);
    assert(
      Number.isSafeInteger(end) && end >= 0 && end * 4 <= buffer.bytes,
      `${end} values fit into buffer ${buffer.id} of ${buffer.bytes / 4}`,
    );
    return view;
  }
}
