//! The versioned catalog, natively: `models/versioned.py`, step for step.
//!
//! A state is a sorted list of words, a name's rank above the number of what it holds, and is kept
//! once; steps that change something copy that list. Nothing else is remembered: a step costs
//! about what a look into a memory of steps would.

use crate::bits::Map;
use crate::model::{Step, ILLEGAL};

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// A table with a given id.
    Create,
    /// Its end.
    Drop,
    /// Another payload, one version more.
    Alter,
    /// Another name, the same version.
    Rename,
    /// What is under a name.
    Get,
    /// All names and ids.
    List,
}

/// What was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nobody knows.
    Unknown,
    /// The name is taken.
    Exists,
    /// Nothing is there.
    NotFound,
    /// It was done.
    Done,
}

/// What a name holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Table {
    /// Which table it is.
    pub ident: i64,
    /// From 1.
    pub version: i64,
    /// What the last change left.
    pub payload: i64,
}

/// One operation; names are ranks in the order of names.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What is asked.
    pub request: Request,
    /// The name, and the new one of a rename.
    pub names: [u32; 2],
    /// What a create or an alter leaves.
    pub payload: i64,
    /// The id that a create gives.
    pub ident: i64,
    /// What was answered.
    pub result: Outcome,
    /// What the answer shows.
    pub shown: Table,
    /// What a list shows: names by rank, and ids.
    pub listing: Vec<(u32, i64)>,
}

impl Operation {
    /// Whether the state after it is always the one before.
    pub fn read_only(&self) -> bool {
        matches!(self.request, Request::Get | Request::List)
            || matches!(self.result, Outcome::Exists | Outcome::NotFound)
    }
}

/// The catalog with its states so far; the first is empty.
pub struct Catalog {
    operations: Vec<Operation>,
    tables: Vec<Table>,
    table_numbers: Map<Table, u32>,
    held: Vec<u64>,        // the lists of all states, one behind the other
    starts: Vec<usize>,    // where each state's list begins, and the last one's end
    states: Map<u64, u32>, // from a hash to the last state that has it
    alike: Vec<u32>,       // the state before it with the same hash, or ILLEGAL
    draft: Vec<u64>,       // the list being made
}

fn rank(word: u64) -> u32 {
    (word >> 32) as u32
}

fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0, |mixed, word| {
        let mixed = (mixed ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 29)
    })
}

impl Catalog {
    /// A catalog that is empty at first.
    pub fn new(operations: Vec<Operation>) -> Self {
        let mut catalog = Self {
            operations,
            tables: Vec::new(),
            table_numbers: Map::default(),
            held: Vec::new(),
            starts: vec![0],
            states: Map::default(),
            alike: Vec::new(),
            draft: Vec::new(),
        };
        catalog.number();
        catalog
    }

    /// How many states there are.
    pub fn states(&self) -> usize {
        self.alike.len()
    }

    /// The names, by rank, and what they hold, in the order of names.
    pub fn state(&self, state: u32) -> impl Iterator<Item = (u32, Table)> + '_ {
        let words = self.words(state).iter();
        words.map(|word| (rank(*word), self.table(*word)))
    }

    fn words(&self, state: u32) -> &[u64] {
        &self.held[self.starts[state as usize]..self.starts[state as usize + 1]]
    }

    fn table(&self, word: u64) -> Table {
        self.tables[word as u32 as usize]
    }

    /// A table under a name.
    fn word(&mut self, name: u32, table: Table) -> u64 {
        let next = self.tables.len() as u32;
        let number = *self.table_numbers.entry(table).or_insert(next);
        if number == next {
            self.tables.push(table);
        }
        u64::from(name) << 32 | u64::from(number)
    }

    /// The number of the state in `draft`.
    fn number(&mut self) -> u32 {
        let next = self.alike.len() as u32;
        assert!(next < ILLEGAL, "states have numbers of 32 bits");
        let hash = hash(&self.draft);
        let last = self.states.get(&hash).copied().unwrap_or(ILLEGAL);
        let mut same = last;
        while same != ILLEGAL && self.words(same) != self.draft {
            same = self.alike[same as usize];
        }
        if same != ILLEGAL {
            return same;
        }
        self.states.insert(hash, next);
        self.alike.push(last);
        self.held.extend_from_slice(&self.draft);
        self.starts.push(self.held.len());
        next
    }

    /// Whether `words` are the names and ids that a list shows.
    fn looks_like(&self, words: &[u64], listing: &[(u32, i64)]) -> bool {
        words.len() == listing.len()
            && words.iter().zip(listing).all(|(word, (name, ident))| {
                rank(*word) == *name && self.table(*word).ident == *ident
            })
    }

    /// The state after a change of `state`, or `None` if it fails; `place` says where the name is,
    /// or would be.
    fn apply(&mut self, state: u32, op: usize, place: Result<usize, usize>) -> Option<u32> {
        let operation = &self.operations[op];
        let (request, [name, name2]) = (operation.request, operation.names);
        let (payload, ident) = (operation.payload, operation.ident);
        let mut draft = std::mem::take(&mut self.draft);
        draft.clear();
        draft.extend_from_slice(self.words(state));
        let done = match (request, place) {
            (Request::Create, Err(place)) => {
                let made = Table {
                    ident,
                    version: 1,
                    payload,
                };
                draft.insert(place, self.word(name, made));
                true
            }
            (Request::Drop, Ok(place)) => {
                draft.remove(place);
                true
            }
            (Request::Alter, Ok(place)) => {
                let before = self.table(draft[place]);
                let version = before.version + 1;
                let after = Table {
                    version,
                    payload,
                    ..before
                };
                draft[place] = self.word(name, after);
                true
            }
            (Request::Rename, Ok(place)) => match find(&draft, name2) {
                Ok(_) => false,
                Err(_) => {
                    let moved = u64::from(name2) << 32 | u64::from(draft.remove(place) as u32);
                    let target = find(&draft, name2).unwrap_or_else(|place| place);
                    draft.insert(target, moved);
                    true
                }
            },
            _ => false,
        };
        self.draft = draft;
        done.then(|| self.number())
    }
}

/// Where a name is among `words`, or would be.
fn find(words: &[u64], name: u32) -> Result<usize, usize> {
    words.binary_search_by_key(&name, |word| rank(*word))
}

impl Step for Catalog {
    type Error = std::convert::Infallible;

    fn initial(&self) -> u32 {
        0
    }

    fn step(&mut self, state: u32, op: u32) -> Result<u32, Self::Error> {
        let pass = |legal: bool| if legal { state } else { ILLEGAL };
        let operation = &self.operations[op as usize];
        let words = self.words(state);
        if operation.request == Request::List {
            let legal =
                operation.result == Outcome::Unknown || self.looks_like(words, &operation.listing);
            return Ok(pass(legal));
        }
        let place = find(words, operation.names[0]);
        let held = place.ok().map(|place| self.table(words[place]));
        match operation.result {
            Outcome::Unknown => return Ok(self.apply(state, op as usize, place).unwrap_or(state)),
            Outcome::NotFound => {
                return Ok(pass(held.is_none() && operation.request != Request::Create))
            }
            Outcome::Exists => {
                let taken =
                    operation.request != Request::Rename || find(words, operation.names[1]).is_ok();
                return Ok(pass(held.is_some() && taken));
            }
            Outcome::Done => {}
        }
        if operation.request == Request::Get {
            return Ok(pass(held == Some(operation.shown)));
        }
        if let Some(held) = held {
            let altered = operation.request == Request::Alter;
            if held.ident != operation.shown.ident
                || (altered && held.version + 1 != operation.shown.version)
            {
                return Ok(ILLEGAL);
            }
        }
        Ok(self.apply(state, op as usize, place).unwrap_or(ILLEGAL))
    }
}
