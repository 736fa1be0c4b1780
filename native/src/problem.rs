//! Prepares a history for searches; `problem.py` explains the representation.
//!
//! Unlike in `problem.py`, slots are numbers instead of single-bit masks. One vector holds the
//! lists of open operations of all returns.

use crate::bits::Bits;
use crate::model::{Step, ILLEGAL};

/// Replaces a number that does not exist.
pub const NONE: u32 = u32::MAX;

/// The properties of an operation that the preparation needs.
#[derive(Clone, Copy)]
pub struct Span {
    /// The time of the call.
    pub call: i64,
    /// The time of the return; `None` for an operation of unknown outcome.
    pub end: Option<i64>,
    /// The class of the operation. Operations of one class have the same steps.
    pub class: u32,
    /// Whether the answer shows that the operation changed nothing.
    pub read_only: bool,
    /// The index of the operation's footprint.
    pub footprint: u32,
}

/// The parts of the state that an operation reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Whether the operation touches the whole state.
    pub everything: bool,
    /// If not, the parts that it touches, as a bit set.
    pub words: Vec<u64>,
}

impl Footprint {
    fn is_empty(&self) -> bool {
        !self.everything && self.words.iter().all(|word| *word == 0)
    }

    /// Whether two footprints share a part. An empty footprint shares nothing, even with a
    /// footprint that touches everything.
    fn meets(&self, other: &Self) -> bool {
        match (self.everything, other.everything) {
            (true, true) => true,
            (true, false) => !other.is_empty(),
            (false, true) => !self.is_empty(),
            (false, false) => self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0),
        }
    }

    fn absorb(&mut self, other: &Self) {
        self.everything |= other.everything;
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }
}

/// The parts of the state that can matter at one configuration. `None` means all parts, and is the
/// usual value.
pub type Reach = Option<Footprint>;

/// One list of (slot, operation) per return.
#[derive(Default)]
pub struct Opens {
    starts: Vec<usize>,
    items: Vec<(u32, u32)>,
}

impl Opens {
    /// The list before return `position`.
    #[inline]
    pub fn at(&self, position: u32) -> &[(u32, u32)] {
        let position = position as usize;
        let end = self
            .starts
            .get(position + 1)
            .copied()
            .unwrap_or(self.items.len());
        &self.items[self.starts[position]..end]
    }

    fn push(&mut self, items: impl Iterator<Item = (u32, u32)>) {
        self.starts.push(self.items.len());
        self.items.extend(items);
    }
}

/// One history to search. Searches do not change it.
#[derive(Default)]
pub struct Problem {
    /// The number of operations, including operations that the search leaves out.
    pub operations: usize,
    /// Operation numbers in the order of their returns.
    pub returns: Vec<u32>,
    /// The slots of the operations in `returns`.
    pub return_slots: Vec<u32>,
    /// The open writes just before each return, latest call first.
    pub writes: Opens,
    /// The open reads just before each return, in call order.
    pub reads: Opens,
    /// Operations that never returned, in call order, without read-only operations.
    pub unknown: Vec<u32>,
    /// The number of unknown operations called before each return.
    pub unknown_called: Vec<u32>,
    /// The previous interchangeable unknown operation, or `NONE`.
    pub unknown_twin: Vec<u32>,
    /// The maximum number of slots in use at once.
    pub slots: u32,
    footprint_of: Vec<u32>,
    footprints: Vec<Footprint>,
    separable: bool,
    unknown_footprints: Vec<u32>, // distinct footprints, in the order of first calls
    unknown_footprints_seen: Vec<u32>, // the number of these before each return
}

impl Problem {
    /// Sort the events and assign slots; no span may end before its call.
    pub fn new(spans: &[Span], footprints: Vec<Footprint>) -> Self {
        let mut problem = Self {
            operations: spans.len(),
            footprint_of: spans.iter().map(|span| span.footprint).collect(),
            separable: spans
                .iter()
                .any(|span| !footprints[span.footprint as usize].everything),
            footprints,
            ..Self::default()
        };
        let (mut calls, mut returns) = (Vec::with_capacity(spans.len()), Vec::new());
        for (number, span) in (0u32..).zip(spans) {
            if span.end.is_some() || !span.read_only {
                calls.push((span.call, number));
            }
            returns.extend(span.end.map(|end| (end, number)));
        }
        // Histories are usually sorted by call or by return already, and that sort is then cheap.
        calls.sort();
        returns.sort();
        let mut returns = returns.into_iter().peekable();
        let mut events: Vec<(bool, u32)> = Vec::with_capacity(2 * spans.len());
        for (call, number) in calls {
            while let Some((_, ended)) = returns.next_if(|(end, _)| *end < call) {
                events.push((true, ended));
            }
            events.push((false, number));
        }
        events.extend(returns.map(|(_, ended)| (true, ended)));
        problem.sweep(spans, &events);
        problem
    }

    fn sweep(&mut self, spans: &[Span], events: &[(bool, u32)]) {
        let mut free: Vec<u32> = Vec::new();
        let mut slot_of: Vec<u32> = vec![NONE; spans.len()];
        let mut writes: Vec<(u32, u32)> = Vec::new();
        let mut reads: Vec<(u32, u32)> = Vec::new();
        let mut twins = crate::bits::Map::default();
        for &(is_return, number) in events {
            let span = &spans[number as usize];
            let side = if span.read_only {
                &mut reads
            } else {
                &mut writes
            };
            if is_return {
                let slot = slot_of[number as usize];
                self.returns.push(number);
                self.return_slots.push(slot);
                self.writes.push(writes.iter().rev().copied());
                self.reads.push(reads.iter().copied());
                self.unknown_called.push(self.unknown.len() as u32);
                self.unknown_footprints_seen
                    .push(self.unknown_footprints.len() as u32);
                let side = if span.read_only {
                    &mut reads
                } else {
                    &mut writes
                };
                side.retain(|(_, other)| *other != number);
                free.push(slot);
            } else if span.end.is_none() {
                let twin = twins.insert(span.class, self.unknown.len() as u32);
                self.unknown_twin.push(twin.unwrap_or(NONE));
                self.unknown.push(number);
                if !self.unknown_footprints.contains(&span.footprint) {
                    self.unknown_footprints.push(span.footprint);
                }
            } else {
                let slot = free.pop().unwrap_or_else(|| {
                    self.slots += 1;
                    self.slots - 1
                });
                slot_of[number as usize] = slot;
                side.push((slot, number));
            }
        }
    }

    /// The number of returns. A search that reaches this position has found an order.
    #[inline]
    pub fn end(&self) -> u32 {
        self.returns.len() as u32
    }

    /// Return the footprint of all operations that can affect the return at `position`.
    pub fn relevant<const M: usize>(&self, position: u32, mask: &Bits<M>) -> Reach {
        let must = self.returns[position as usize];
        if !self.separable {
            return None;
        }
        let mut reach = self.footprint(must).clone();
        let open = self
            .writes
            .at(position)
            .iter()
            .chain(self.reads.at(position));
        let seen = self.unknown_footprints_seen[position as usize] as usize;
        let mut apart: Vec<&Footprint> = open
            .filter(|(slot, _)| !mask.has(*slot))
            .map(|(_, op)| self.footprint(*op))
            .chain(
                self.unknown_footprints[..seen]
                    .iter()
                    .map(|n| &self.footprints[*n as usize]),
            )
            .collect();
        let mut grown = !reach.everything;
        while grown {
            grown = false;
            apart.retain(|footprint| {
                let connected = footprint.meets(&reach);
                if connected {
                    reach.absorb(footprint);
                    grown = true;
                }
                !connected
            });
        }
        Some(reach)
    }

    fn footprint(&self, op: u32) -> &Footprint {
        &self.footprints[self.footprint_of[op as usize] as usize]
    }

    /// Whether the footprint of the operation meets `reach`.
    #[inline]
    pub fn matters(&self, op: u32, reach: &Reach) -> bool {
        reach
            .as_ref()
            .is_none_or(|reach| self.footprint(op).meets(reach))
    }

    /// Pass the returns of linearized operations, and absorb open reads that are legal.
    #[inline]
    pub fn advance<S: Step, const M: usize>(
        &self,
        model: &mut S,
        mut position: u32,
        mut mask: Bits<M>,
        state: u32,
    ) -> Result<(u32, Bits<M>), S::Error> {
        while position < self.end() {
            for &(slot, op) in self.reads.at(position) {
                if !mask.has(slot) && model.step(state, op)? == state {
                    mask = mask.with(slot);
                }
            }
            let slot = self.return_slots[position as usize];
            if !mask.has(slot) {
                break;
            }
            mask = mask.without(slot);
            position += 1;
        }
        Ok((position, mask))
    }

    /// Return the whole order, with absorbed reads, to which the choices of a search lead.
    ///
    /// Returns `None` if a choice is illegal, which would be a bug of the search.
    pub fn replay<S: Step>(
        &self,
        model: &mut S,
        choices: &[u32],
    ) -> Result<Option<Vec<u32>>, S::Error> {
        let mut order = Vec::with_capacity(self.operations);
        let mut done = vec![false; self.operations];
        let mut state = model.initial();
        let mut position = 0;
        for choice in std::iter::once(None).chain(choices.iter().map(|op| Some(*op))) {
            match choice {
                Some(op) if !done[op as usize] => {
                    state = model.step(state, op)?;
                    if state == ILLEGAL {
                        return Ok(None);
                    }
                    done[op as usize] = true;
                    order.push(op);
                }
                _ => {} // the replay may have absorbed a chosen read already
            }
            while position < self.end() {
                for &(_, op) in self.reads.at(position) {
                    if !done[op as usize] && model.step(state, op)? == state {
                        done[op as usize] = true;
                        order.push(op);
                    }
                }
                if !done[self.returns[position as usize] as usize] {
                    break;
                }
                position += 1;
            }
        }
        Ok(Some(order))
    }
}
