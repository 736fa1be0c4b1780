//! The native core: the searches of the linearizability checker, as a Python extension module.
//!
//! `checkers/linearizability/native.py` is the only caller. The modules mirror `problem.py`,
//! `search.py` and `frontier.py`: tests require equal results. A model written in Python is called
//! once per state and class of equal operations. Steps of a register run without the interpreter's
//! lock.

mod bits;
mod depth;
mod frontier;
mod load;
mod model;
mod problem;
mod python;

use pyo3::prelude::*;

/// The version of the interface. Raise it with every change that Python code can see.
const INTERFACE: u32 = 2;

/// Define the extension module `checkers._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<python::Core>()?;
    module.add_class::<python::Search>()?;
    module.add("Unsupported", module.py().get_type::<python::Unsupported>())
}
