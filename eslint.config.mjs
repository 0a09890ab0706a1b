import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["build/", ".venv*/", "docs/"] },
  js.configs.recommended,
  {
    languageOptions: { globals: globals.browser },
    rules: { "no-unused-vars": ["error", { argsIgnorePattern: "^_" }] },
  },
];
