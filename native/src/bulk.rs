//! Many small register histories at once, from columns: one legal order for each, where a short
//! search finds one.
//!
//! `checkers/linearizability/bulk.py` is the only caller; it verifies every order by other means
//! and gives every history without one to the ordinary searches. So this can only ever say less.

use std::convert::Infallible;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::depth::{DepthFirst, Status};
use crate::model::{Register, RegisterOperation};
use crate::problem::{Footprint, Problem, Span};

const SLOTS_MAX: u32 = 64; // one word
const UNKNOWN_MAX: usize = 64;

/// The operations of all histories, one behind another.
struct Columns {
    calls: Vec<i64>,
    ends: Vec<i64>, // negative: of unknown outcome
    kinds: Vec<u8>, // as in bulk.py
    first: Vec<i64>,
    second: Vec<i64>,
}

/// What was found for one history.
struct Found {
    order: Option<Vec<u32>>,
    configurations: u32,
}

fn whole(bytes: &[u8]) -> PyResult<Vec<i64>> {
    if bytes.len() % 8 != 0 {
        return Err(PyValueError::new_err("a column is cut within a number"));
    }
    let number = |eight: &[u8]| i64::from_le_bytes(eight.try_into().expect("eight bytes"));
    Ok(bytes.chunks_exact(8).map(number).collect())
}

impl Columns {
    fn operation(&self, at: usize) -> Option<RegisterOperation> {
        let value = |number: i64| u32::try_from(number).ok();
        let first = value(self.first[at])?;
        Some(match (self.kinds[at], self.ends[at] < 0) {
            (0, false) => RegisterOperation::Read(first),
            (0, true) => RegisterOperation::ReadUnknown,
            (1, _) => RegisterOperation::Write(first),
            (2, false) => RegisterOperation::Cas(first, value(self.second[at])?),
            (2, true) => RegisterOperation::CasUnknown(first, value(self.second[at])?),
            (3, false) => RegisterOperation::CasFailed(first),
            _ => return None,
        })
    }

    /// A short depth-first search over the operations `begin..end`.
    fn search(&self, begin: usize, end: usize, steps: u64, configurations: usize) -> Found {
        let nothing = Found {
            order: None,
            configurations: 0,
        };
        let operations: Option<Vec<_>> = (begin..end).map(|at| self.operation(at)).collect();
        let Some(operations) = operations else {
            return nothing;
        };
        let mut register = Register::new(0, operations);
        let read_only = register.read_only();
        let classes = register.classes(|number| self.ends[begin + number] < 0);
        let mut spans = Vec::with_capacity(end - begin);
        for (number, at) in (begin..end).enumerate() {
            let end = (self.ends[at] >= 0).then_some(self.ends[at]);
            if end.is_some_and(|end| end < self.calls[at]) {
                return nothing;
            }
            spans.push(Span {
                call: self.calls[at],
                end,
                class: classes[number],
                read_only: read_only[number],
                footprint: 0,
            });
        }
        let everything = Footprint {
            everything: true,
            words: Vec::new(),
        };
        let problem = Problem::new(&spans, vec![everything]);
        if problem.slots > SLOTS_MAX || problem.unknown.len() > UNKNOWN_MAX {
            return nothing;
        }
        // Without unknown operations lean and complete are the same; see api.py.
        let lean = !problem.unknown.is_empty();
        let mut search = sure(DepthFirst::<1, 1>::new(
            &problem,
            &mut register,
            lean,
            configurations,
        ));
        sure(search.run(&problem, &mut register, steps));
        let order = if search.status == Status::Found {
            sure(problem.replay(&mut register, &search.choices()))
        } else {
            None
        };
        Found {
            order,
            configurations: search.configurations as u32,
        }
    }
}

fn sure<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

/// Calls, ends, kinds, first and second values; see `register_orders`.
type Given<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a [u8], &'a [u8]);

/// The orders (as `u32`), how long each is (-1 where none was found), and the configurations.
type Orders<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);

/// Search each history for a legal order of its operations, each for at most `steps`.
///
/// `columns` are calls, ends, kinds, first and second values of the operations, as little-endian
/// bytes of i64 but for the kinds; `starts` is where each history begins, and the end of the last.
/// Orders count the operations of a history from 0; the register's first value has number 0.
#[pyfunction]
pub fn register_orders<'py>(
    py: Python<'py>,
    columns: Given<'_>,
    starts: &[u8],
    steps: u64,
    configurations: usize,
) -> PyResult<Orders<'py>> {
    let (calls, ends, kinds, first, second) = columns;
    let columns = Columns {
        calls: whole(calls)?,
        ends: whole(ends)?,
        kinds: kinds.to_vec(),
        first: whole(first)?,
        second: whole(second)?,
    };
    let starts = whole(starts)?;
    let count = columns.calls.len();
    let lengths = [
        columns.ends.len(),
        columns.kinds.len(),
        columns.first.len(),
        columns.second.len(),
    ];
    let in_order = starts.windows(2).all(|pair| pair[0] <= pair[1]);
    let bounds = (starts.first().copied(), starts.last().copied());
    if lengths.iter().any(|length| *length != count)
        || !in_order
        || bounds != (Some(0), Some(count as i64))
    {
        return Err(PyValueError::new_err("columns of different lengths"));
    }
    let found: Vec<Found> = py.detach(|| {
        starts
            .windows(2)
            .map(|pair| columns.search(pair[0] as usize, pair[1] as usize, steps, configurations))
            .collect()
    });
    let mut orders: Vec<u8> = Vec::with_capacity(4 * count);
    let mut sizes: Vec<u8> = Vec::with_capacity(8 * found.len());
    let mut explored: Vec<u8> = Vec::with_capacity(8 * found.len());
    for one in &found {
        let size = one.order.as_ref().map_or(-1, |order| order.len() as i64);
        sizes.extend_from_slice(&size.to_le_bytes());
        explored.extend_from_slice(&i64::from(one.configurations).to_le_bytes());
        for op in one.order.iter().flatten() {
            orders.extend_from_slice(&op.to_le_bytes());
        }
    }
    Ok((
        PyBytes::new(py, &orders),
        PyBytes::new(py, &sizes),
        PyBytes::new(py, &explored),
    ))
}
