//! Converts operations from Python objects to numbers.
//!
//! A history that the native core does not support is not an error. `Load::Unsupported` has the
//! reason, and the caller uses the pure Python code, which also reports invalid operations.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple};

use crate::bits::Map;
use crate::model::{Register, RegisterOperation};
use crate::problem::{Footprint, Span};

const EXACT_MAX: i64 = 1 << 53; // a float represents every integer up to this one

/// The result of a conversion.
pub enum Load<T> {
    /// The converted operations.
    Done(T),
    /// The reason why only the pure Python search can handle the history.
    Unsupported(&'static str),
}

/// An operation with its Python input and output, before it has a class.
pub struct Raw<'py> {
    /// The input.
    pub input: Bound<'py, PyAny>,
    /// The output; `UNKNOWN` without a return.
    pub output: Bound<'py, PyAny>,
    /// The time of the call.
    pub call: i64,
    /// The time of the return; `None` for an operation of unknown outcome.
    pub end: Option<i64>,
}

enum Time {
    Whole(i64),
    Real(f64),
}

fn time(value: &Bound<'_, PyAny>) -> Option<Time> {
    if value.is_instance_of::<PyInt>() {
        value.extract().ok().map(Time::Whole)
    } else if value.is_instance_of::<PyFloat>() {
        value
            .extract()
            .ok()
            .filter(|real: &f64| !real.is_nan())
            .map(Time::Real)
    } else {
        None
    }
}

/// Return an integer that sorts like the float.
fn sortable(real: f64) -> i64 {
    let bits = (real + 0.0).to_bits() as i64; // -0.0 becomes 0.0
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Read all operations. Operations without a return get the output `unknown`.
pub fn read<'py>(
    operations: &Bound<'py, PyTuple>,
    unknown: &Bound<'py, PyAny>,
) -> PyResult<Load<Vec<Raw<'py>>>> {
    let py = operations.py();
    let (name_input, name_output) = (intern!(py, "input"), intern!(py, "output"));
    let (name_call, name_return) = (intern!(py, "call"), intern!(py, "return_time"));
    let mut found = Vec::with_capacity(operations.len());
    let mut times: Vec<(Time, Option<Time>)> = Vec::with_capacity(operations.len());
    let (mut any_whole, mut any_real, mut all_exact) = (false, false, true);
    for operation in operations.iter() {
        let call = time(&operation.getattr(name_call)?);
        let returned = operation.getattr(name_return)?;
        let end = if returned.is_none() {
            None
        } else {
            Some(time(&returned))
        };
        let (Some(call), Some(end)) = (call, end.map_or(Some(None), |end| end.map(Some))) else {
            return Ok(Load::Unsupported(
                "a time is not a 64-bit integer or a real number",
            ));
        };
        for moment in std::iter::once(&call).chain(&end) {
            match moment {
                Time::Whole(whole) => {
                    any_whole = true;
                    all_exact &= (-EXACT_MAX..=EXACT_MAX).contains(whole);
                }
                Time::Real(_) => any_real = true,
            }
        }
        let output = if end.is_none() {
            unknown.clone()
        } else {
            operation.getattr(name_output)?
        };
        times.push((call, end));
        found.push(Raw {
            input: operation.getattr(name_input)?,
            output,
            call: 0,
            end: None,
        });
    }
    if any_whole && any_real && !all_exact {
        return Ok(Load::Unsupported(
            "times mix reals with integers that reals cannot hold",
        ));
    }
    let number = |moment: &Time| match moment {
        Time::Whole(whole) if any_real => sortable(*whole as f64),
        Time::Whole(whole) => *whole,
        Time::Real(real) => sortable(*real),
    };
    for (raw, (call, end)) in found.iter_mut().zip(&times) {
        (raw.call, raw.end) = (number(call), end.as_ref().map(number));
        if raw.end.is_some_and(|end| end < raw.call) {
            return Ok(Load::Unsupported("an operation returns before its call"));
        }
    }
    Ok(Load::Done(found))
}

/// The classes of operations, with the objects to pass to the Python model.
pub struct Classes {
    /// The class of each operation.
    pub of: Vec<u32>,
    /// The input and output of each class.
    pub examples: Vec<(Py<PyAny>, Py<PyAny>)>,
}

/// Assign operations with equal inputs and outputs to the same class. The types must also be equal,
/// since 1 equals True, but a model may distinguish them. An operation that is not hashable gets a
/// class of its own.
pub fn classes(py: Python<'_>, raws: &[Raw<'_>]) -> PyResult<Classes> {
    let numbers = PyDict::new(py);
    let mut found = Classes {
        of: Vec::with_capacity(raws.len()),
        examples: Vec::new(),
    };
    for raw in raws {
        let next = found.examples.len() as u32;
        let key = PyTuple::new(
            py,
            [
                &raw.input,
                &raw.output,
                raw.input.get_type().as_any(),
                raw.output.get_type().as_any(),
            ],
        )?;
        let known = match numbers.get_item(&key) {
            Ok(Some(number)) => Some(number.extract()?),
            Ok(None) => {
                numbers.set_item(&key, next)?;
                None
            }
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => None,
            Err(error) => return Err(error),
        };
        found.of.push(known.unwrap_or(next));
        if known.is_none() {
            found
                .examples
                .push((raw.input.clone().unbind(), raw.output.clone().unbind()));
        }
    }
    Ok(found)
}

/// Return the distinct footprints, and for each class the index of its footprint.
pub fn footprints(
    py: Python<'_>,
    classes: &Classes,
    footprint: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Vec<Footprint>, Vec<u32>)> {
    let everything = Footprint {
        everything: true,
        words: Vec::new(),
    };
    let Some(footprint) = footprint else {
        return Ok((vec![everything], vec![0; classes.examples.len()]));
    };
    let parts_seen = PyDict::new(py);
    let mut distinct: Vec<Footprint> = Vec::new();
    let mut numbers = std::collections::HashMap::new();
    let mut of = Vec::with_capacity(classes.examples.len());
    for (input, _) in &classes.examples {
        let parts = footprint.call1((input,))?;
        let mut found = everything.clone();
        if !parts.is_none() {
            found.everything = false;
            for part in parts.try_iter()? {
                let part = part?;
                let bit = match parts_seen.get_item(&part)? {
                    Some(bit) => bit.extract::<usize>()?,
                    None => {
                        let bit = parts_seen.len();
                        parts_seen.set_item(&part, bit)?;
                        bit
                    }
                };
                if found.words.len() <= bit / 64 {
                    found.words.resize(bit / 64 + 1, 0);
                }
                found.words[bit / 64] |= 1 << (bit % 64);
            }
        }
        let key = (found.everything, found.words.clone());
        of.push(*numbers.entry(key).or_insert_with(|| {
            distinct.push(found);
            distinct.len() as u32 - 1
        }));
    }
    if distinct.is_empty() {
        distinct.push(everything);
    }
    Ok((distinct, of))
}

/// The Python classes of a register's inputs.
pub struct RegisterTypes<'py> {
    /// `Read`.
    pub read: Bound<'py, PyAny>,
    /// `Write`.
    pub write: Bound<'py, PyAny>,
    /// `Cas`.
    pub cas: Bound<'py, PyAny>,
}

/// Assigns numbers to values. Equal values have the same number, whatever their types: 1 == True ==
/// 1.0.
struct Values<'py> {
    whole: Map<i64, u32>,
    others: Bound<'py, PyDict>, // texts, `None`, and numbers beyond 64-bit integers
    values: Vec<Py<PyAny>>,
}

impl<'py> Values<'py> {
    fn add(&mut self, value: &Bound<'py, PyAny>) -> u32 {
        self.values.push(value.clone().unbind());
        self.values.len() as u32 - 1
    }

    /// Return the number of a value; `None` if its type is not supported, or if it does not equal
    /// itself (nan).
    fn number(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Option<u32>> {
        let mut whole = None;
        if value.is_exact_instance_of::<PyInt>() || value.is_exact_instance_of::<PyBool>() {
            whole = value.extract::<i64>().ok();
        } else if value.is_exact_instance_of::<PyFloat>() {
            let real: f64 = value.extract()?;
            if real.is_nan() {
                return Ok(None);
            }
            let in_range = (-(2f64.powi(63))..2f64.powi(63)).contains(&real);
            whole = (in_range && real.fract() == 0.0).then_some(real as i64);
        } else if !value.is_none() && !value.is_exact_instance_of::<PyString>() {
            return Ok(None);
        }
        if let Some(whole) = whole {
            if let Some(number) = self.whole.get(&whole) {
                return Ok(Some(*number));
            }
            let number = self.add(value);
            self.whole.insert(whole, number);
            return Ok(Some(number));
        }
        if let Some(number) = self.others.get_item(value)? {
            return number.extract().map(Some);
        }
        let number = self.add(value);
        self.others.set_item(value, number)?;
        Ok(Some(number))
    }
}

/// Convert operations to those of a register that holds `initial` at first; also return the
/// register's values by number. Returns `None` if a type is not exactly one of the register's.
pub fn register<'py>(
    raws: &[Raw<'py>],
    types: &RegisterTypes<'py>,
    initial: &Bound<'py, PyAny>,
    unknown: &Bound<'py, PyAny>,
) -> PyResult<Option<(Register, Vec<Py<PyAny>>)>> {
    let py = initial.py();
    let others = PyDict::new(py);
    let mut values = Values {
        whole: Map::default(),
        others,
        values: Vec::new(),
    };
    let Some(first) = values.number(initial)? else {
        return Ok(None);
    };
    let mut operations = Vec::with_capacity(raws.len());
    for raw in raws {
        let (kind, is_unknown) = (raw.input.get_type(), raw.output.is(unknown));
        let Ok(input) = raw.input.cast::<PyTuple>() else {
            return Ok(None);
        };
        let operation = if kind.is(&types.write) {
            values
                .number(&input.get_item(0)?)?
                .map(RegisterOperation::Write)
        } else if kind.is(&types.read) && is_unknown {
            Some(RegisterOperation::ReadUnknown)
        } else if kind.is(&types.read) {
            values.number(&raw.output)?.map(RegisterOperation::Read)
        } else if kind.is(&types.cas) {
            let old = values.number(&input.get_item(0)?)?;
            let new = values.number(&input.get_item(1)?)?;
            let outcome = raw.output.extract::<bool>().ok();
            old.zip(new).map(|(old, new)| match outcome {
                _ if is_unknown => RegisterOperation::CasUnknown(old, new),
                Some(true) => RegisterOperation::Cas(old, new),
                Some(false) => RegisterOperation::CasFailed(old),
                None => RegisterOperation::Never,
            })
        } else {
            None
        };
        let Some(operation) = operation else {
            return Ok(None);
        };
        operations.push(operation);
    }
    Ok(Some((Register::new(first, operations), values.values)))
}

/// Return the spans of all operations, for the preparation.
pub fn spans(
    raws: &[Raw<'_>],
    classes: &[u32],
    read_only: impl Fn(usize, u32) -> bool,
    footprint_of: &[u32],
) -> Vec<Span> {
    raws.iter()
        .zip(classes)
        .enumerate()
        .map(|(number, (raw, class))| Span {
            call: raw.call,
            end: raw.end,
            class: *class,
            read_only: read_only(number, *class),
            footprint: footprint_of.get(*class as usize).copied().unwrap_or(0),
        })
        .collect()
}
