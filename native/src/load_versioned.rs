//! From Python's operations on a versioned catalog to those of `versioned.rs`.

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString, PyTuple};

use crate::bits::Map;
use crate::load::Raw;
use crate::problem::{Footprint, Span};
use crate::versioned::{Catalog, Operation, Outcome, Request, Table};

/// The types of its inputs and outputs.
pub struct VersionedTypes<'py> {
    /// `VersionedInput`.
    pub input: Bound<'py, PyAny>,
    /// `VersionedOutput`.
    pub output: Bound<'py, PyAny>,
}

/// What came of it.
pub struct Loaded {
    /// The model.
    pub catalog: Catalog,
    /// Names by rank.
    pub names: Vec<String>,
    /// Which operations never change the state.
    pub read_only: Vec<bool>,
    /// For the preparation.
    pub spans: Vec<Span>,
    /// For the preparation.
    pub footprints: Vec<Footprint>,
}

/// Names in the order in which they come; a name is mostly the very object that it was before.
#[derive(Default)]
struct Names {
    objects: Map<usize, u32>,
    texts: std::collections::HashMap<String, u32>,
}

impl Names {
    /// `None` for what is not text that UTF-8 can hold. The object must outlive this.
    fn number(&mut self, name: &Bound<'_, PyAny>) -> Option<u32> {
        let place = name.as_ptr() as usize;
        if let Some(number) = self.objects.get(&place) {
            return Some(*number);
        }
        let text = name.cast_exact::<PyString>().ok()?.to_str().ok()?;
        let next = self.texts.len() as u32;
        let number = *self.texts.entry(text.to_owned()).or_insert(next);
        self.objects.insert(place, number);
        Some(number)
    }

    /// The names sorted, and the rank of each number. UTF-8 sorts as code points do.
    fn ranked(self) -> (Vec<String>, Vec<u32>) {
        let mut texts: Vec<(String, u32)> = self.texts.into_iter().collect();
        texts.sort();
        let mut ranks = vec![0; texts.len()];
        for (rank, (_, number)) in (0u32..).zip(&texts) {
            ranks[*number as usize] = rank;
        }
        (texts.into_iter().map(|(text, _)| text).collect(), ranks)
    }
}

fn whole(value: &Bound<'_, PyAny>) -> Option<i64> {
    // A version may grow by one with every operation.
    let value: i64 = value.cast_exact::<PyInt>().ok()?.extract().ok()?;
    (value.unsigned_abs() < 1 << 62).then_some(value)
}

fn request(value: &Bound<'_, PyAny>) -> Option<Request> {
    match value.cast_exact::<PyString>().ok()?.to_str().ok()? {
        "create" => Some(Request::Create),
        "drop" => Some(Request::Drop),
        "alter" => Some(Request::Alter),
        "ren" => Some(Request::Rename),
        "get" => Some(Request::Get),
        "list" => Some(Request::List),
        _ => None,
    }
}

fn outcome(value: &Bound<'_, PyAny>) -> Option<Outcome> {
    match value.cast_exact::<PyString>().ok()?.to_str().ok()? {
        "ok" => Some(Outcome::Done),
        "ex" => Some(Outcome::Exists),
        "nf" => Some(Outcome::NotFound),
        _ => None,
    }
}

fn listing(value: &Bound<'_, PyAny>, names: &mut Names) -> Option<Vec<(u32, i64)>> {
    let entries = value.cast_exact::<PyTuple>().ok()?;
    let mut found = Vec::with_capacity(entries.len());
    for entry in entries.iter_borrowed() {
        let entry = entry.cast_exact::<PyTuple>().ok()?;
        if entry.len() != 2 {
            return None;
        }
        let name = names.number(&*entry.get_borrowed_item(0).ok()?)?;
        found.push((name, whole(&*entry.get_borrowed_item(1).ok()?)?));
    }
    Some(found)
}

fn operation(
    raw: &Raw<'_>,
    types: &VersionedTypes<'_>,
    unknown: &Bound<'_, PyAny>,
    names: &mut Names,
) -> Option<Operation> {
    if !raw.input.get_type().is(&types.input) {
        return None;
    }
    let input = raw.input.cast::<PyTuple>().ok()?;
    let given = |at: usize| input.get_borrowed_item(at).ok();
    let mut read = Operation {
        request: request(&*given(0)?)?,
        names: [names.number(&*given(1)?)?, names.number(&*given(2)?)?],
        payload: whole(&*given(3)?)?,
        ident: whole(&*given(4)?)?,
        result: Outcome::Unknown,
        shown: Table {
            ident: 0,
            version: 0,
            payload: 0,
        },
        listing: Vec::new(),
    };
    if raw.output.is(unknown) {
        return Some(read);
    }
    if !raw.output.get_type().is(&types.output) {
        return None;
    }
    let output = raw.output.cast::<PyTuple>().ok()?;
    let told = |at: usize| output.get_borrowed_item(at).ok();
    read.result = outcome(&*told(0)?)?;
    read.shown = Table {
        ident: whole(&*told(1)?)?,
        version: whole(&*told(2)?)?,
        payload: whole(&*told(3)?)?,
    };
    read.listing = listing(&*told(4)?, names)?;
    Some(read)
}

/// The operations as those of a versioned catalog; `None` where something is not exactly what the
/// model's own types say. The objects behind `raws` must stay as they are meanwhile.
pub fn versioned(
    raws: &[Raw<'_>],
    types: &VersionedTypes<'_>,
    unknown: &Bound<'_, PyAny>,
) -> Option<Loaded> {
    let mut names = Names::default();
    let mut operations = Vec::with_capacity(raws.len());
    for raw in raws {
        operations.push(operation(raw, types, unknown, &mut names)?);
    }
    let (names, ranks) = names.ranked();
    for operation in &mut operations {
        operation.names = operation.names.map(|name| ranks[name as usize]);
        for (name, _) in &mut operation.listing {
            *name = ranks[*name as usize];
        }
    }
    let read_only: Vec<bool> = operations.iter().map(Operation::read_only).collect();
    let (mut footprints, mut seen) = (Vec::new(), Map::default());
    let mut classes = Map::default();
    let mut spans = Vec::with_capacity(raws.len());
    for ((raw, operation), read_only) in raws.iter().zip(&operations).zip(&read_only) {
        let parts = match (operation.request, operation.names) {
            (Request::List, _) => None,
            (Request::Rename, [one, other]) => Some([one.min(other), one.max(other)]),
            (_, [name, _]) => Some([name, name]),
        };
        let key = parts.map_or(u64::MAX, |[low, high]| {
            u64::from(low) << 32 | u64::from(high)
        });
        let footprint = *seen.entry(key).or_insert_with(|| {
            footprints.push(of_names(parts));
            footprints.len() as u32 - 1
        });
        // Only unknown operations are compared with each other.
        let mut class = 0;
        if raw.end.is_none() {
            let said = (
                operation.request,
                operation.names,
                operation.payload,
                operation.ident,
            );
            let next = classes.len() as u32 + 1;
            class = *classes.entry(said).or_insert(next);
        }
        spans.push(Span {
            call: raw.call,
            end: raw.end,
            class,
            read_only: *read_only,
            footprint,
        });
    }
    Some(Loaded {
        catalog: Catalog::new(operations),
        names,
        read_only,
        spans,
        footprints,
    })
}

fn of_names(parts: Option<[u32; 2]>) -> Footprint {
    let mut words = Vec::new();
    for part in parts.into_iter().flatten() {
        let word = part as usize / 64;
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        words[word] |= 1 << (part % 64);
    }
    Footprint {
        everything: parts.is_none(),
        words,
    }
}
