// What a person types into the search field, as a question about nodes.

import { FACT } from "./picture.js";

const PLAIN = ["name", "op", "shape", "module", "region"];

// Shapes are spoken of as 2x128 and written as [2, 128]; both become 2,128.
const simple = (text) => text.toLowerCase().replace(/\s+/g, "").replace(/(?<=\d)[x×](?=\d)/g, ",");

// All words must be found, each in name, op, shape, module or region, or in one field: `op:gelu`, `line:forward`.
// `/…/` is a regular expression.
export function matches(picture, query) {
  const text = query.trim();
  if (!text) return { nodes: [] };
  const fact = (which) => (node) => picture.fact(node, which);
  const piece = (read) => (node) => (picture.nodePieces[node] < 0 ? "" : read(picture.pieces[picture.nodePieces[node]]));
  const read = {
    name: fact(FACT.name), op: fact(FACT.target), shape: fact(FACT.value), dtype: fact(FACT.value),
    module: fact(FACT.module), line: fact(FACT.source),
    region: piece((one) => picture.regions[one.region].name), state: piece((one) => one.state),
  };
  let test;
  const pattern = /^\/(.+?)(?:\/i?)?$/.exec(text);
  if (pattern) {
    let expression;
    try {
      expression = new RegExp(pattern[1], "iu");
    } catch {
      return { nodes: [], error: "not a regular expression" };
    }
    test = (node) => PLAIN.some((field) => expression.test(read[field](node)));
  } else {
    const words = text.split(/\s+/).map((word) => {
      const [, field, rest] = /^([a-z]+):(.+)$/.exec(word) ?? [];
      return Object.hasOwn(read, field) ? [[field], simple(rest)] : [PLAIN, simple(word)];
    });
    test = (node) => words.every(([fields, wanted]) => fields.some((field) => simple(read[field](node)).includes(wanted)));
  }
  return { nodes: picture.where(test) };
}
