// Finds the nodes that match the text of the search field.

const FIELDS = {
  name: ({ name }) => name,
  op: ({ target }) => target,
  shape: ({ value }) => value,
  dtype: ({ value }) => value,
  module: ({ module }) => module,
  line: ({ source }) => source,
  region: ({ piece }, regions) => regions[piece?.region]?.name,
  state: ({ piece }) => piece?.state,
};
const PLAIN_FIELDS = ["name", "op", "shape", "module", "region"];

// A shape is typed as 2x128 and written as [2, 128]; both become 2,128.
const normalized = (text) =>
  text
    .toLowerCase()
    .replace(/\s+/g, "")
    .replace(/(?<=\d)[x×](?=\d)/g, ",");

// All words must be found, each in one of the plain fields, or in the one it names: `op:gelu`, `line:forward`.
// `/…/` is a regular expression.
export function matches(picture, query) {
  const text = query.trim();
  const fieldText = (field, node) => FIELDS[field](picture.outline.nodes[node], picture.regions) ?? "";
  const pattern = /^\/(.+?)(?:\/i?)?$/.exec(text);
  if (pattern) {
    let expression;
    try {
      expression = new RegExp(pattern[1], "iu");
    } catch {
      return { nodes: [], error: "not a regular expression" };
    }
    return { nodes: picture.where((node) => PLAIN_FIELDS.some((field) => expression.test(fieldText(field, node)))) };
  }
  const words = text.split(/\s+/).map((word) => {
    const [, field, value] = /^(\w+):(.+)$/.exec(word) ?? [];
    return Object.hasOwn(FIELDS, field) ? [[field], normalized(value)] : [PLAIN_FIELDS, normalized(word)];
  });
  const hasWord = (node, [fields, value]) => fields.some((field) => normalized(fieldText(field, node)).includes(value));
  return { nodes: picture.where((node) => words.every((word) => hasWord(node, word))) };
}
