//! The classes of the extension module, and models written in Python, whose steps are memoized.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::bits::Map;
use crate::depth::{DepthFirst, Status};
use crate::frontier::Frontier;
use crate::load::{self, Load, RegisterTypes};
use crate::model::{Register, Step, ILLEGAL};
use crate::problem::{Opens, Problem};

create_exception!(
    _native,
    Unsupported,
    PyException,
    "The native core cannot represent this history; the pure Python search can."
);

/// The number of steps after which a search checks for signals such as Ctrl-C.
const SIGNAL_STEPS: u64 = 50_000;
const STATES_MAX: usize = 1 << 31;

/// A model written in Python. Each distinct step is called once and memoized.
struct PythonModel {
    step: Py<PyAny>,
    contradiction: Py<PyAny>,
    classes: load::Classes,
    read_only: Vec<bool>, // by class
    memo: Map<(u32, u32), u32>,
    numbers: Py<PyDict>,
    states: Vec<Py<PyAny>>,
    calls: u64,
}

impl PythonModel {
    fn number(&mut self, state: &Bound<'_, PyAny>) -> PyResult<u32> {
        let numbers = self.numbers.bind(state.py());
        if let Some(number) = numbers.get_item(state)? {
            return number.extract();
        }
        if self.states.len() >= STATES_MAX {
            return Err(PyValueError::new_err("a model has more than 2^31 states"));
        }
        let number = self.states.len() as u32;
        numbers.set_item(state, number)?;
        self.states.push(state.clone().unbind());
        Ok(number)
    }

    #[cold]
    fn ask(&mut self, py: Python<'_>, state: u32, class: u32) -> PyResult<u32> {
        self.calls += 1;
        let (input, output) = &self.classes.examples[class as usize];
        let before = self.states[state as usize].clone_ref(py);
        let answer = self.step.bind(py).call1((&before, input, output))?;
        let (legal, after): (Bound<'_, PyAny>, Bound<'_, PyAny>) = answer.extract()?;
        let number = if !legal.is_truthy()? {
            ILLEGAL
        } else if after.is(&before) {
            state
        } else {
            self.number(&after)?
        };
        if number != ILLEGAL && number != state && self.read_only[class as usize] {
            let (input, output) = &self.classes.examples[class as usize];
            let error = self.contradiction.bind(py).call1((input, output, before))?;
            return Err(PyErr::from_value(error));
        }
        self.memo.insert((class, state), number);
        Ok(number)
    }
}

/// A Python model, usable while the interpreter's lock is held.
struct Attached<'a, 'py> {
    py: Python<'py>,
    model: &'a mut PythonModel,
}

impl Step for Attached<'_, '_> {
    type Error = PyErr;

    fn initial(&self) -> u32 {
        0
    }

    #[inline]
    fn step(&mut self, state: u32, op: u32) -> PyResult<u32> {
        let class = self.model.classes.of[op as usize];
        match self.model.memo.get(&(class, state)) {
            Some(after) => Ok(*after),
            None => self.model.ask(self.py, state, class),
        }
    }
}

enum Model {
    Python(PythonModel),
    Register {
        register: Register,
        values: Vec<Py<PyAny>>,
    },
}

/// One history with its model. It corresponds to `Problem` and `Stepper` in Python.
#[pyclass(module = "checkers._native")]
pub struct Core {
    problem: Problem,
    read_only: Vec<bool>,
    model: Model,
}

#[pymethods]
impl Core {
    /// Prepare the tuple `operations` for searches. `hooks` is a tuple of Python objects: the
    /// output `UNKNOWN`, the function `contradiction(input, output, state) -> error`, and the input
    /// types (Read, Write, Cas) of a plain register, or `None` for other models. `reads` and
    /// `separable` say whether the model overrides `read_only` and `footprint`.
    #[new]
    fn new(
        model: &Bound<'_, PyAny>,
        operations: &Bound<'_, PyTuple>,
        hooks: &Bound<'_, PyTuple>,
        reads: bool,
        separable: bool,
    ) -> PyResult<Self> {
        let py = model.py();
        if operations.len() >= (1 << 31) {
            return Err(Unsupported::new_err(
                "a history has 2^31 operations or more",
            ));
        }
        let unknown = hooks.get_item(0)?;
        let raws = match load::read(operations, &unknown)? {
            Load::Done(raws) => raws,
            Load::Unsupported(why) => return Err(Unsupported::new_err(why)),
        };
        let types = hooks.get_item(2)?;
        if !types.is_none() {
            let (read, write, cas) = types.extract()?;
            let types = RegisterTypes { read, write, cas };
            let initial = model.call_method0("init")?;
            if let Some((register, values)) = load::register(&raws, &types, &initial, &unknown)? {
                let read_only: Vec<bool> = register.read_only();
                // Only unknown operations need classes, since only they can be interchangeable.
                let of = register.classes(|number| raws[number].end.is_none());
                let spans = load::spans(&raws, &of, |number, _| read_only[number], &[]);
                let footprints = vec![crate::problem::Footprint {
                    everything: true,
                    words: Vec::new(),
                }];
                let problem = py.detach(|| Problem::new(&spans, footprints));
                check_size(&problem)?;
                let model = Model::Register { register, values };
                return Ok(Self {
                    problem,
                    read_only,
                    model,
                });
            }
        }
        let classes = load::classes(py, &raws)?;
        let by_class: Vec<bool> = if reads {
            let read_only = model.getattr("read_only")?;
            let ask = |(input, output): &(Py<PyAny>, Py<PyAny>)| {
                read_only.call1((input, output))?.is_truthy()
            };
            classes.examples.iter().map(ask).collect::<PyResult<_>>()?
        } else {
            vec![false; classes.examples.len()]
        };
        let footprint = if separable {
            Some(model.getattr("footprint")?)
        } else {
            None
        };
        let (footprints, footprint_of) = load::footprints(py, &classes, footprint.as_ref())?;
        let read_only = classes
            .of
            .iter()
            .map(|class| by_class[*class as usize])
            .collect();
        let spans = load::spans(
            &raws,
            &classes.of,
            |_, class| by_class[class as usize],
            &footprint_of,
        );
        let mut python = PythonModel {
            step: model.getattr("step")?.unbind(),
            contradiction: hooks.get_item(1)?.unbind(),
            classes,
            read_only: by_class,
            memo: Map::default(),
            numbers: PyDict::new(py).unbind(),
            states: Vec::new(),
            calls: 0,
        };
        python.number(&model.call_method0("init")?)?;
        let problem = py.detach(|| Problem::new(&spans, footprints));
        check_size(&problem)?;
        Ok(Self {
            problem,
            read_only,
            model: Model::Python(python),
        })
    }

    /// Whether steps run without Python.
    #[getter]
    fn is_native_model(&self) -> bool {
        !matches!(self.model, Model::Python(_))
    }

    /// The number of calls of the Python model.
    #[getter]
    fn model_calls(&self) -> u64 {
        match &self.model {
            Model::Python(model) => model.calls,
            Model::Register { .. } => 0,
        }
    }

    #[getter]
    fn slots(&self) -> u32 {
        self.problem.slots
    }

    #[getter]
    fn returns(&self) -> Vec<u32> {
        self.problem.returns.clone()
    }

    #[getter]
    fn return_slots(&self) -> Vec<u32> {
        self.problem.return_slots.clone()
    }

    #[getter]
    fn returns_total(&self) -> usize {
        self.problem.returns.len()
    }

    #[getter]
    fn unknown(&self) -> Vec<u32> {
        self.problem.unknown.clone()
    }

    #[getter]
    fn unknown_called(&self) -> Vec<u32> {
        self.problem.unknown_called.clone()
    }

    /// The previous interchangeable unknown operation of each; -1 without one.
    #[getter]
    fn unknown_twin(&self) -> Vec<i64> {
        let twins = self.problem.unknown_twin.iter();
        twins
            .map(|twin| {
                if *twin == crate::problem::NONE {
                    -1
                } else {
                    i64::from(*twin)
                }
            })
            .collect()
    }

    #[getter]
    fn read_only(&self) -> Vec<bool> {
        self.read_only.clone()
    }

    /// Return the open reads, or the open writes (latest call first), as (slot, operation).
    fn opens(&self, position: u32, reads: bool) -> PyResult<Vec<(u32, u32)>> {
        let opens: &Opens = if reads {
            &self.problem.reads
        } else {
            &self.problem.writes
        };
        if position >= self.problem.end() {
            return Err(PyIndexError::new_err(format!(
                "there is no return {position}"
            )));
        }
        Ok(opens.at(position).to_vec())
    }

    #[getter]
    fn initial(&self) -> u32 {
        match &self.model {
            Model::Python(_) => 0,
            Model::Register { register, .. } => register.initial(),
        }
    }

    /// Return the number of the state after an operation; -1 if it is illegal.
    fn step(&mut self, py: Python<'_>, state: u32, op: u32) -> PyResult<i64> {
        if op as usize >= self.problem.operations {
            return Err(PyIndexError::new_err(format!("there is no operation {op}")));
        }
        self.state(py, state)?;
        let after = match &mut self.model {
            Model::Python(model) => Attached { py, model }.step(state, op)?,
            Model::Register { register, .. } => sure(register.step(state, op)),
        };
        Ok(if after == ILLEGAL {
            -1
        } else {
            i64::from(after)
        })
    }

    /// Return the state with this number.
    fn state(&self, py: Python<'_>, number: u32) -> PyResult<Py<PyAny>> {
        let state = match &self.model {
            Model::Python(model) => model.states.get(number as usize).map(|s| s.clone_ref(py)),
            Model::Register { values, .. } => values.get(number as usize).map(|s| s.clone_ref(py)),
        };
        match state {
            Some(state) => Ok(state),
            None => Err(PyIndexError::new_err(format!("there is no state {number}"))),
        }
    }

    /// Return the whole order to which the branching choices of a search lead.
    fn replay(&mut self, py: Python<'_>, choices: Vec<u32>) -> PyResult<Vec<u32>> {
        if choices
            .iter()
            .any(|op| *op as usize >= self.problem.operations)
        {
            return Err(PyIndexError::new_err("a choice is not an operation"));
        }
        let order = match &mut self.model {
            Model::Python(model) => self.problem.replay(&mut Attached { py, model }, &choices)?,
            Model::Register { register, .. } => sure(self.problem.replay(register, &choices)),
        };
        order.ok_or_else(|| PyValueError::new_err("a search took an illegal step"))
    }
}

/// Return the value of a step that cannot fail.
fn sure<T>(result: Result<T, std::convert::Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

/// Surviving configurations as (mask, used, state, path), and the nodes of their paths as (node,
/// previous node or -1, choice). `mask` and `used` are sorted indices.
type Remaining = (Vec<(Vec<u32>, Vec<u32>, u32, i64)>, Vec<(i64, i64, u32)>);

/// The interface of a search for `Search`, independent of the widths of its bit sets.
trait Explore: Send + Sync {
    fn run_python(&mut self, problem: &Problem, model: &mut Attached, limit: u64) -> PyResult<()>;
    fn run_register(&mut self, problem: &Problem, model: &mut Register, limit: u64);
    fn status(&self) -> Status;
    fn steps(&self) -> u64;
    fn best(&self) -> u32;
    fn configurations(&self) -> usize;
    fn choices(&self) -> Vec<u32>;
    fn remaining(&self) -> Remaining;
}

macro_rules! explore {
    ($search:ident, |$it:ident| $remaining:expr) => {
        impl<const M: usize, const U: usize> Explore for $search<M, U> {
            fn run_python(
                &mut self,
                problem: &Problem,
                model: &mut Attached,
                limit: u64,
            ) -> PyResult<()> {
                self.run(problem, model, limit)
            }
            fn run_register(&mut self, problem: &Problem, model: &mut Register, limit: u64) {
                sure(self.run(problem, model, limit));
            }
            fn status(&self) -> Status {
                self.status
            }
            fn steps(&self) -> u64 {
                self.steps
            }
            fn best(&self) -> u32 {
                self.best
            }
            fn configurations(&self) -> usize {
                self.configurations
            }
            fn choices(&self) -> Vec<u32> {
                $search::choices(self)
            }
            fn remaining(&self) -> Remaining {
                let $it = self;
                $remaining
            }
        }
    };
}

explore!(DepthFirst, |_it| (Vec::new(), Vec::new()));
explore!(Frontier, |it| {
    let configs = Frontier::remaining(it);
    let show = |config: &crate::frontier::Configuration<M, U>| {
        (
            config.mask.indices(),
            config.used.indices(),
            config.state,
            config.path(),
        )
    };
    (configs.iter().map(show).collect(), it.paths_of(&configs))
});

#[derive(Clone, Copy)]
struct Kind {
    breadth: bool,
    lean: bool,
    configurations_max: usize,
}

fn start<const M: usize, const U: usize, S: Step>(
    problem: &Problem,
    model: &mut S,
    kind: Kind,
) -> Result<Box<dyn Explore>, S::Error> {
    let most = kind.configurations_max;
    Ok(if kind.breadth {
        Box::new(Frontier::<M, U>::new(problem, model, most)?)
    } else {
        Box::new(DepthFirst::<M, U>::new(problem, model, kind.lean, most)?)
    })
}

const SLOTS_MAX: u32 = 1024;
const UNKNOWN_MAX: usize = 4096;

fn check_size(problem: &Problem) -> PyResult<()> {
    if problem.slots <= SLOTS_MAX && problem.unknown.len() <= UNKNOWN_MAX {
        return Ok(());
    }
    Err(Unsupported::new_err(format!(
        "{} operations open at once and {} of unknown outcome; at most {SLOTS_MAX} and \
         {UNKNOWN_MAX} can be represented",
        problem.slots,
        problem.unknown.len()
    )))
}

/// Start a search with the narrowest bit sets that fit; `check_size` was called before.
fn start_fitting<S: Step>(
    problem: &Problem,
    model: &mut S,
    kind: Kind,
) -> Result<Box<dyn Explore>, S::Error> {
    match (problem.slots, problem.unknown.len()) {
        (0..=64, 0..=64) => start::<1, 1, S>(problem, model, kind),
        (0..=64, 65..=256) => start::<1, 4, S>(problem, model, kind),
        (0..=128, 0..=256) => start::<2, 4, S>(problem, model, kind),
        (0..=128, 257..=1024) => start::<2, 16, S>(problem, model, kind),
        _ => start::<16, 64, S>(problem, model, kind),
    }
}

/// A resumable search: `DepthFirst` or `Frontier`.
#[pyclass(module = "checkers._native")]
pub struct Search {
    core: Py<Core>,
    explore: Box<dyn Explore>,
}

#[pymethods]
impl Search {
    #[new]
    fn new(
        py: Python<'_>,
        core: Py<Core>,
        breadth: bool,
        lean: bool,
        configurations_max: usize,
    ) -> PyResult<Self> {
        let kind = Kind {
            breadth,
            lean,
            configurations_max,
        };
        let mut borrowed = core.bind(py).try_borrow_mut()?;
        let Core { problem, model, .. } = &mut *borrowed;
        let explore = match model {
            Model::Python(model) => start_fitting(problem, &mut Attached { py, model }, kind)?,
            Model::Register { register, .. } => sure(start_fitting(problem, register, kind)),
        };
        drop(borrowed);
        Ok(Self { core, explore })
    }

    /// Search for about `budget` more steps; returns the status.
    fn run(&mut self, py: Python<'_>, budget: u64) -> PyResult<u8> {
        let limit = self.explore.steps().saturating_add(budget);
        let mut borrowed = self.core.bind(py).try_borrow_mut()?;
        let Core { problem, model, .. } = &mut *borrowed;
        let explore = &mut self.explore;
        while explore.status() == Status::Running && explore.steps() < limit {
            let slice = limit.min(explore.steps() + SIGNAL_STEPS);
            match model {
                Model::Python(model) => {
                    explore.run_python(problem, &mut Attached { py, model }, slice)?;
                }
                Model::Register { register, .. } => {
                    py.detach(|| explore.run_register(problem, register, slice));
                }
            }
            py.check_signals()?;
        }
        Ok(explore.status() as u8)
    }

    #[getter]
    fn status(&self) -> u8 {
        self.explore.status() as u8
    }

    #[getter]
    fn steps(&self) -> u64 {
        self.explore.steps()
    }

    #[getter]
    fn best(&self) -> u32 {
        self.explore.best()
    }

    #[getter]
    fn configurations(&self) -> usize {
        self.explore.configurations()
    }

    /// The branching choices of the current path, or of the winner of a breadth-first search.
    fn choices(&self) -> Vec<u32> {
        self.explore.choices()
    }

    /// Return the surviving configurations of a breadth-first search (see `Remaining`).
    fn remaining(&self) -> Remaining {
        self.explore.remaining()
    }
}
