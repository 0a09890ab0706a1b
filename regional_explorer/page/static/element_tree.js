// The widget of a plain element tree: all of it is described by the kernel.

import { widget } from "./dom.js";
import { ElementTree } from "./tree.js";

export default widget(ElementTree);
