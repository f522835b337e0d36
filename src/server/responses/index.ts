/** OpenAI's Responses: `/v1/responses`, and what is kept of them. */
import { isJsonObject, type JsonObject } from '../../chat/index.ts';
import { UserError } from '../../util/index.ts';
import type { Api, Endpoint, Route } from '../api.ts';
import { wrongField } from '../fields.ts';
import { errorBody } from '../openai/errors.ts';
import { type Past, readResponsesRequest } from './request.ts';
import { ResponseRun } from './run.ts';
import { ResponseState } from './state.ts';

const path = '/v1/responses';

/** With a store of its own. */
export function openResponses(): Api {
  const state = new ResponseState();
  const create: Endpoint = {
    path,
    idPrefix: 'resp_',
    read: (body, context) => {
      const read = readResponsesRequest(body, pastOf(state, context.caller), context);
      return new ResponseRun(read, context, state).call();
    },
  };
  return {
    name: 'responses',
    owns: (url) => url.startsWith(path),
    endpoints: [create],
    routes: routesOf(state),
    errorBody,
  };
}

function pastOf({ store }: ResponseState, caller: string): Past {
  return {
    history: (id) => {
      const found = store.find(caller, id);
      if (found !== null) return [...found.input, ...found.output];
      throw new UserError(
        'previous_response_not_found',
        `previous response with id '${id.slice(0, 200)}' not found`,
        { param: 'previous_response_id', hint: 'Send the items of the conversation instead.' },
      );
    },
    item: (id, at) => {
      const found = store.item(caller, id);
      if (found !== null) return found;
      throw new UserError('not_found', `item with id '${id.slice(0, 200)}' not found`, {
        param: at,
        hint: 'Send the item itself: only the last responses are kept, and none with store: false.',
      });
    },
  };
}

function routesOf(state: ResponseState): Route[] {
  const { store } = state;
  const one = `${path}/:id`;
  return [
    {
      method: 'GET',
      path: one,
      handle: ({ params, query }, { caller }) => {
        if (query.stream === 'true' || query.stream === '1')
          throw wrongField('stream', 'is true, which is not supported: a stream is read once');
        return state.body(caller, params.id ?? '');
      },
    },
    {
      method: 'DELETE',
      path: one,
      handle: ({ params: { id = '' } }, { caller }) => {
        store.delete(caller, id);
        return { id, object: 'response', deleted: true };
      },
    },
    {
      method: 'POST',
      path: `${one}/cancel`,
      handle: ({ params }, { caller }) => state.cancel(caller, params.id ?? ''),
    },
    {
      method: 'GET',
      path: `${one}/input_items`,
      handle: ({ params, query }, { caller }) => listed(store.get(caller, params.id ?? '').input, query),
    },
    {
      method: 'POST',
      path: `${path}/input_tokens`,
      handle: ({ body }, context) => {
        // The model is the server's where a request names none.
        const named =
          isJsonObject(body) && body.model === undefined ? { model: context.modelName, ...body } : body;
        const { request, model } = readResponsesRequest(named, pastOf(state, context.caller), context);
        context.checkModel(model);
        const { ids } = context.completion.renderPrompt(request);
        return { object: 'response.input_tokens', input_tokens: ids.length };
      },
    },
  ];
}

const maxPage = 100;

/** A page of items, newest first unless `order` is asc. Throws UserError. */
function listed(items: readonly JsonObject[], query: Readonly<Record<string, unknown>>) {
  const { order = 'desc', limit = '20', after } = query;
  const count = Number(limit);
  if (!Number.isInteger(count) || count < 1 || count > maxPage)
    throw wrongField(
      'limit',
      `is '${String(limit).slice(0, 200)}', expected a whole number from 1 to ${maxPage}`,
    );
  if (order !== 'asc' && order !== 'desc')
    throw wrongField('order', `is '${String(order).slice(0, 200)}', expected asc or desc`);
  const ordered = order === 'asc' ? items : items.toReversed();
  const from = after === undefined ? 0 : ordered.findIndex(({ id }) => id === after) + 1;
  if (after !== undefined && from === 0)
    throw wrongField('after', `is '${String(after).slice(0, 200)}', which is no item of this response`);
  const data = ordered.slice(from, from + count).map(shown);
  return {
    object: 'list',
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: from + count < ordered.length,
  };
}

/** A message as OpenAI lists it: with a type, its text in parts. */
function shown(item: JsonObject): JsonObject {
  const { type = 'message', content, role } = item;
  if (type !== 'message' || typeof content !== 'string') return { ...item, type };
  const kind = role === 'assistant' ? 'output_text' : 'input_text';
  return { status: 'completed', ...item, type, content: [{ type: kind, text: content }] };
}
