//! The native core: searches of the linearizability checker, callable from Python.
//!
//! `checkers/linearizability/native.py` is the only caller; this mirrors `problem.py`,
//! `search.py` and `frontier.py`, which are the specification and the oracle. A model written in
//! Python is called only for a (state, operation class) never seen before. A register is stepped
//! natively, with the interpreter's lock released.

mod bits;
mod depth;
mod frontier;
mod load;
mod model;
mod problem;
mod python;

use pyo3::prelude::*;

/// The number of the interface, which changes with each signature that Python sees.
const INTERFACE: u32 = 2;

/// The extension module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<python::Core>()?;
    module.add_class::<python::Search>()?;
    module.add("Unsupported", module.py().get_type::<python::Unsupported>())
}
