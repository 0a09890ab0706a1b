// What a person types into the search field, as a question about nodes.

import { FACT } from "./picture.js";

const FIELDS = {
  name: [FACT.name], op: [FACT.op, FACT.target], shape: [FACT.value], dtype: [FACT.value], module: [FACT.module], line: [FACT.source], source: [FACT.source],
  region: [], state: [],
};
const ALL = [FACT.name, FACT.target, FACT.value, FACT.module];

const plain = (text) => text.toLowerCase().replace(/[\s×]+/g, (found) => (found.includes("×") ? "," : ""));

// Words must all be found, in name, op, shape, module or region, or in one of them: `op:gelu`; `/…/` is a regular expression.
export function matches(picture, query) {
  const text = query.trim();
  if (!text) return { nodes: [], error: "" };
  const regions = (node) => {
    const piece = picture.nodePieces[node];
    return piece < 0 ? ["", ""] : [picture.regions[picture.pieces[piece].region].name, picture.pieces[piece].state];
  };
  const pattern = /^\/(.+?)(?:\/i?)?$/.exec(text);
  let test;
  if (pattern) {
    let expression;
    try {
      expression = new RegExp(pattern[1], "iu");
    } catch {
      return { nodes: [], error: "not a regular expression" };
    }
    test = (node) => expression.test([...ALL.map((which) => picture.fact(node, which)), ...regions(node)].join("\n"));
  } else {
    const prepared = new Map();
    const simple = (value) => {
      if (!prepared.has(value)) prepared.set(value, plain(value));
      return prepared.get(value);
    };
    const terms = text.split(/\s+/).map((word) => {
      const [, field, rest] = /^([a-z]+):(.+)$/.exec(word) ?? [];
      const known = field in FIELDS;
      const wanted = plain(known ? rest : word);
      // 2x128 is how shapes are spoken of, 2,128 how they are written.
      return { field: known ? field : "", wanted, shape: wanted.replace(/(?<=\d)x(?=\d)/g, ",") };
    });
    test = (node) => terms.every(({ field, wanted, shape }) => {
      const [region, state] = regions(node);
      if (field === "region") return simple(region).includes(wanted);
      if (field === "state") return simple(state) === wanted;
      return (field ? FIELDS[field] : ALL).some((which) => simple(picture.fact(node, which)).includes(which === FACT.value ? shape : wanted))
        || (!field && simple(region).includes(wanted));
    });
  }
  const nodes = [];
  for (let node = 0; node < picture.nodes; node += 1) if (test(node)) nodes.push(node);
  return { nodes, error: "" };
}
