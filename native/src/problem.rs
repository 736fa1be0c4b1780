//! A history, prepared for searching: the same representation as `problem.py`, which explains it.
//!
//! Slots are numbers here instead of single-bit masks, and the lists of open operations of all
//! returns lie behind one another in one vector.

use crate::bits::Bits;
use crate::model::{Step, ILLEGAL};

/// No number.
pub const NONE: u32 = u32::MAX;

/// One operation, as the preparation sees it.
#[derive(Clone, Copy)]
pub struct Span {
    /// When it was called.
    pub call: i64,
    /// When it returned; `None` makes it unknown.
    pub end: Option<i64>,
    /// Operations of one class step equally.
    pub class: u32,
    /// Whether its response says that nothing changed.
    pub read_only: bool,
    /// The number of its footprint.
    pub footprint: u32,
}

/// The parts of the state that an operation reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Footprint {
    /// All of it.
    pub everything: bool,
    /// Otherwise these parts, as a bit set whose length is that of the highest one.
    pub words: Vec<u64>,
}

impl Footprint {
    fn is_empty(&self) -> bool {
        !self.everything && self.words.iter().all(|word| *word == 0)
    }

    /// Whether they share a part. An empty footprint shares nothing, even with everything.
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

/// The parts that can matter at one configuration; `None` is the usual "anything".
pub type Reach = Option<Footprint>;

/// Lists of (slot, operation), one per return.
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

/// One history. Nothing here changes while searches run.
#[derive(Default)]
pub struct Problem {
    /// The number of operations, left-out ones included.
    pub operations: usize,
    /// Operation numbers in the order of their returns.
    pub returns: Vec<u32>,
    /// The slots of those.
    pub return_slots: Vec<u32>,
    /// Just before each return, latest call first.
    pub writes: Opens,
    /// Just before each return, in call order.
    pub reads: Opens,
    /// Operations that never returned, in call order; read-only ones are left out.
    pub unknown: Vec<u32>,
    /// The number of them called before each return.
    pub unknown_called: Vec<u32>,
    /// The previous interchangeable one, or `NONE`.
    pub unknown_twin: Vec<u32>,
    /// The highest number of slots in use at once.
    pub slots: u32,
    footprint_of: Vec<u32>,
    footprints: Vec<Footprint>,
    separable: bool,
    unknown_footprints: Vec<u32>, // distinct ones, in the order of their first call
    unknown_footprints_seen: Vec<u32>, // how many of them before each return
}

impl Problem {
    /// Sort the events and assign slots. No span may end before its call.
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
        // Histories usually come sorted by one or the other, which makes that sort trivial.
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

    /// The number of returns, and so the position at which a search has won.
    #[inline]
    pub fn end(&self) -> u32 {
        self.returns.len() as u32
    }

    /// The footprint of all that can matter to the operation that must return at `position`.
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

    /// Whether the operation can matter where `reach` is what can.
    #[inline]
    pub fn matters(&self, op: u32, reach: &Reach) -> bool {
        reach
            .as_ref()
            .is_none_or(|reach| self.footprint(op).meets(reach))
    }

    /// Pass returns whose operation is linearized and absorb reads that are legal now.
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

    /// The whole order (absorbed reads included) behind the branching choices of a search.
    ///
    /// Returns `None` where a choice is illegal, which no search may let happen.
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
                _ => {} // a read may be chosen, then absorbed
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
