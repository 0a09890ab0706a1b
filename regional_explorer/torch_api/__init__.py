"""The one package that uses private torch APIs and knows how torch versions differ.

Everything here is a thin wrapper; the packages that use it say what it is for.
"""

from regional_explorer.torch_api.versions import (
    ANNOTATION,
    FALLBACK,
    MARKS,
    OLDEST_TORCH,
    ORIGIN,
    BoxedCall,
    inductor_knows_fallback,
    require_cache_directory,
    require_supported_torch,
)

# An older torch lacks names that the next lines import, and without a cache directory the imports fail: raise clear
# errors first.
require_supported_torch()
require_cache_directory()

from regional_explorer.torch_api.cache_answers import CacheAnswers, empty_caches
from regional_explorer.torch_api.cache_key import CacheKey
from regional_explorer.torch_api.inductor import (
    INSTALL_COMPILER,
    NO_COMPILER,
    Compiled,
    compile_piece,
    cxx_compiler,
    compiler_version,
    inductor_cache_directory,
    load_compiled,
    probe_instruction_set,
)
from regional_explorer.torch_api.compiled import TracedCall, backend_of, calling_wrapper, named_backend, traced_call
from regional_explorer.torch_api.config import (
    ConfigEntry,
    caches_are_on,
    config_comments,
    config_entries,
    read_config,
)
from regional_explorer.torch_api.folding import Folded
from regional_explorer.torch_api.graphs import (
    AUTOCAST_DEVICES,
    as_subclass_of,
    base_of,
    bodies,
    boxed,
    dispatch_mode,
    draws_random,
    returns_new_tensors,
    is_elementwise,
    input_expression,
    is_carved,
    is_effect_token,
    is_operator,
    only_computes,
    outside_autocast,
    propose_partitions,
    rename,
    resolve,
    set_versions,
    target_key,
    user_kernel,
    written_arguments,
)
from regional_explorer.torch_api.lock import acquired, compile_lock, compile_lock_for_user_code
from regional_explorer.torch_api.machine import Machine
from regional_explorer.torch_api.marks import OpenMark, noting_marks
from regional_explorer.torch_api.release import GeneratedCode, has_given_up, release_compiled, traces_of
from regional_explorer.torch_api.settings import Settings, TorchFlags
from regional_explorer.torch_api.shapes import (
    Guard,
    fake_mode_with_symbols,
    guard_check,
    is_marked_dynamic,
    new_size,
    size_hint,
    substitute,
    symbols_of,
    unmark_dynamic,
)
from regional_explorer.torch_api.shipping import Shipment, ShipmentError
from regional_explorer.torch_api.nested_compile_region import calls_subgraph, subgraph_options
from regional_explorer.torch_api.dynamo import (
    Break,
    aot_backend,
    as_first_call,
    compile_isolated,
    frame_module,
    graph_breaks,
    recompile_reason,
)
from regional_explorer.torch_api.transport import UNSENDABLE, dump_piece, load_piece
from regional_explorer.torch_api.upstream_backends import (
    HAS_LITE_MODE,
    all_graphs,
    annotation_of,
    lite_backend,
    mark_node,
    noting_lite,
    noting_pieces,
    upstream_backend,
)

__all__ = [
    "ANNOTATION",
    "AUTOCAST_DEVICES",
    "FALLBACK",
    "HAS_LITE_MODE",
    "INSTALL_COMPILER",
    "MARKS",
    "NO_COMPILER",
    "OLDEST_TORCH",
    "ORIGIN",
    "UNSENDABLE",
    "BoxedCall",
    "Break",
    "CacheAnswers",
    "CacheKey",
    "Compiled",
    "ConfigEntry",
    "Folded",
    "GeneratedCode",
    "Guard",
    "Machine",
    "OpenMark",
    "Settings",
    "Shipment",
    "ShipmentError",
    "TorchFlags",
    "TracedCall",
    "acquired",
    "all_graphs",
    "annotation_of",
    "aot_backend",
    "as_first_call",
    "as_subclass_of",
    "backend_of",
    "base_of",
    "bodies",
    "boxed",
    "caches_are_on",
    "calling_wrapper",
    "calls_subgraph",
    "compile_isolated",
    "compile_lock",
    "compile_lock_for_user_code",
    "compile_piece",
    "compiler_version",
    "config_comments",
    "config_entries",
    "cxx_compiler",
    "dispatch_mode",
    "draws_random",
    "dump_piece",
    "empty_caches",
    "fake_mode_with_symbols",
    "frame_module",
    "graph_breaks",
    "guard_check",
    "has_given_up",
    "inductor_cache_directory",
    "inductor_knows_fallback",
    "input_expression",
    "is_carved",
    "is_effect_token",
    "is_elementwise",
    "is_marked_dynamic",
    "is_operator",
    "lite_backend",
    "load_compiled",
    "load_piece",
    "mark_node",
    "named_backend",
    "new_size",
    "noting_lite",
    "noting_marks",
    "noting_pieces",
    "only_computes",
    "outside_autocast",
    "probe_instruction_set",
    "propose_partitions",
    "read_config",
    "recompile_reason",
    "release_compiled",
    "rename",
    "resolve",
    "returns_new_tensors",
    "set_versions",
    "size_hint",
    "subgraph_options",
    "substitute",
    "symbols_of",
    "target_key",
    "traced_call",
    "traces_of",
    "unmark_dynamic",
    "upstream_backend",
    "user_kernel",
    "written_arguments",
]
