// A view that is all described by the kernel.

import { widget } from "./dom.js";
import { Sheet } from "./tree.js";

export default widget(Sheet);
