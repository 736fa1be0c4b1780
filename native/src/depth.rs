//! The depth-first search of `search.py`, over configurations of a window of the history.
//!
//! This search and `search.py` make the same moves in the same order and count the same steps, so
//! that tests can require equal results. The generators of `search.py` are state machines here
//! (`Moves`, `Chains`, `Others`).

use crate::bits::{Antichain, Bits, Map, Set};
use crate::model::{Step, ILLEGAL};
use crate::problem::{Problem, Reach, NONE};

const CHAIN_EVALUATIONS_MAX: u64 = 2_000; // as in search.py
const CHAIN_LENGTH_MAX: usize = 3;
const CHOICES_MAX: usize = CHAIN_LENGTH_MAX + 1;

/// The state of a search after it ran for a budget of steps. `native.py` uses the same numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The search can continue.
    Running = 0,
    /// A path passed every return.
    Found = 1,
    /// No configuration is left, so the history is not linearizable.
    Exhausted = 2,
    /// No configuration of a lean search is left. This proves nothing.
    ExhaustedLean = 3,
    /// The search reached its maximum number of remembered configurations.
    Full = 4,
}

/// A short sequence of operation numbers: the choices of one move.
#[derive(Clone, Copy, Default)]
struct Choices {
    ops: [u32; CHOICES_MAX],
    len: u8,
}

impl Choices {
    fn one(op: u32) -> Self {
        Self::default().then(op)
    }

    fn then(mut self, op: u32) -> Self {
        self.ops[usize::from(self.len)] = op;
        self.len += 1;
        self
    }

    fn as_slice(&self) -> &[u32] {
        &self.ops[..usize::from(self.len)]
    }
}

#[derive(Clone, Copy)]
struct Move<const M: usize, const U: usize> {
    choices: Choices,
    mask: Bits<M>,
    used: Bits<U>,
    after: u32,
}

/// The configuration from which the moves of a frame start.
#[derive(Clone, Copy)]
struct Place<const M: usize, const U: usize> {
    position: u32,
    state: u32,
    mask: Bits<M>,
    used: Bits<U>,
}

impl<const M: usize, const U: usize> Place<M, U> {
    /// Return the move that leads to this place by `choices`.
    fn reached_by(&self, choices: Choices) -> Move<M, U> {
        Move {
            choices,
            mask: self.mask,
            used: self.used,
            after: self.state,
        }
    }
}

struct Frame<const M: usize, const U: usize> {
    place: Place<M, U>,
    choices: Choices,
    tried: bool, // whether the must-return operation was tried
    moves: Option<Box<Moves<M, U>>>,
}

/// The kinds of moves, in the order in which a frame tries them. Before these, the frame tries the
/// *must-return operation*, which is the operation that must return next.
#[derive(Clone, Copy)]
enum Phase {
    Helpful,        // open writes that make the must-return operation legal
    HelpfulUnknown, // unknown operations that make the must-return operation legal
    Chains,         // in a lean search: chains of unknown operations that do so
    Known,          // all other open writes
    Deferred,       // unknown operations that do not make the must-return operation legal
    Unknown,        // unknown operations, if the must-return operation is legal
    Others,         // in a lean search: unknown operations that make another open one legal
    Done,
}

/// The moves of one frame that the search has not tried yet.
struct Moves<const M: usize, const U: usize> {
    phase: Phase,
    blocked: bool,
    reach: Reach,
    helpful: Vec<Move<M, U>>,
    known: Vec<Move<M, U>>,
    deferred: Vec<Move<M, U>>,
    next: usize,  // index in the list of the phase
    unknown: u32, // unknown operations below this index are not tried yet
    chains: Option<Chains<U>>,
    trying: Option<u32>, // lean: the slot of the other open operation at `next`
}

struct Chains<const U: usize> {
    stop: u64,
    length: usize,
    level: Vec<(Choices, Bits<U>, u32)>,
    following: Vec<(Choices, Bits<U>, u32)>,
    seen: Map<u32, Antichain<U>>,
    next: usize,
    unknown: u32,
    yielded: bool,
}

enum Visited<const M: usize, const U: usize> {
    Plain(Set<(u32, u32, Bits<M>)>),
    Dominated(Map<(u32, u32, Bits<M>), Antichain<U>>),
}

/// A resumable depth-first search.
pub struct DepthFirst<const M: usize, const U: usize> {
    lean: bool,
    configurations_max: usize,
    visited: Visited<M, U>,
    stack: Vec<Frame<M, U>>,
    /// The number of remembered configurations.
    pub configurations: usize,
    /// The number of attempted steps.
    pub steps: u64,
    /// The position of the furthest return that any path reached.
    pub best: u32,
    /// The state of the search.
    pub status: Status,
}

impl<const M: usize, const U: usize> DepthFirst<M, U> {
    /// Start at the beginning of the history.
    pub fn new<S: Step>(
        problem: &Problem,
        model: &mut S,
        lean: bool,
        configurations_max: usize,
    ) -> Result<Self, S::Error> {
        let visited = if problem.unknown.is_empty() {
            Visited::Plain(Set::default())
        } else {
            Visited::Dominated(Map::default())
        };
        let mut search = Self {
            lean,
            configurations_max,
            visited,
            stack: Vec::new(),
            configurations: 0,
            steps: 0,
            best: 0,
            status: Status::Running,
        };
        let place = Place {
            position: 0,
            state: model.initial(),
            mask: Bits::EMPTY,
            used: Bits::EMPTY,
        };
        search.push(problem, model, place, Choices::default())?;
        Ok(search)
    }

    /// The branching choices of the current path, from the start.
    pub fn choices(&self) -> Vec<u32> {
        self.stack
            .iter()
            .flat_map(|frame| frame.choices.as_slice().iter().copied())
            .collect()
    }

    /// Search until `limit` steps were taken in all.
    pub fn run<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        limit: u64,
    ) -> Result<(), S::Error> {
        while self.status == Status::Running && self.steps < limit {
            let Some(frame) = self.stack.last_mut() else {
                self.status = if self.lean {
                    Status::ExhaustedLean
                } else {
                    Status::Exhausted
                };
                break;
            };
            let place = frame.place;
            if !frame.tried {
                frame.tried = true;
                let must = problem.returns[place.position as usize];
                let slot = problem.return_slots[place.position as usize];
                self.steps += 1;
                let state = model.step(place.state, must)?;
                if state != ILLEGAL {
                    let place = Place {
                        state,
                        mask: place.mask.with(slot),
                        ..place
                    };
                    self.push(problem, model, place, Choices::one(must))?;
                }
                continue;
            }
            let mut moves = match frame.moves.take() {
                Some(moves) => moves,
                None => Box::new(self.open(problem, model, &place)?),
            };
            if let Some(taken) = self.next_move(problem, model, &place, &mut moves)? {
                // The frame is still the last one, since only `push` adds frames.
                if let Some(frame) = self.stack.last_mut() {
                    frame.moves = Some(moves);
                }
                let Move {
                    choices,
                    mask,
                    used,
                    after,
                } = taken;
                let place = Place {
                    position: place.position,
                    state: after,
                    mask,
                    used,
                };
                self.push(problem, model, place, choices)?;
            } else {
                self.stack.pop();
            }
        }
        Ok(())
    }

    fn push<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        mut place: Place<M, U>,
        choices: Choices,
    ) -> Result<(), S::Error> {
        (place.position, place.mask) =
            problem.advance(model, place.position, place.mask, place.state)?;
        self.best = self.best.max(place.position);
        let key = (place.position, place.state, place.mask);
        let is_new = match &mut self.visited {
            Visited::Plain(seen) => seen.insert(key),
            Visited::Dominated(seen) => match seen.entry(key) {
                std::collections::hash_map::Entry::Vacant(entry) => {
                    entry.insert(Antichain::One(place.used));
                    true
                }
                std::collections::hash_map::Entry::Occupied(mut entry) => {
                    !entry.get_mut().dominates(&place.used)
                }
            },
        };
        if !is_new {
            return Ok(());
        }
        self.configurations += 1;
        self.stack.push(Frame {
            place,
            choices,
            tried: false,
            moves: None,
        });
        if place.position == problem.end() {
            self.status = Status::Found;
        } else if self.configurations >= self.configurations_max {
            self.status = Status::Full;
            self.visited = Visited::Plain(Set::default()); // no longer needed
        }
        Ok(())
    }

    fn enables<S: Step>(&mut self, model: &mut S, state: u32, op: u32) -> Result<bool, S::Error> {
        self.steps += 1;
        Ok(model.step(state, op)? != ILLEGAL)
    }

    /// Compute the moves that the search needs first. Other moves are computed on demand.
    fn open<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        place: &Place<M, U>,
    ) -> Result<Moves<M, U>, S::Error> {
        let must = problem.returns[place.position as usize];
        let reach = problem.relevant(place.position, &place.mask);
        let blocked = model.step(place.state, must)? == ILLEGAL;
        let mut known = Vec::new();
        for &(slot, op) in problem.writes.at(place.position) {
            if place.mask.has(slot) || op == must || !problem.matters(op, &reach) {
                continue;
            }
            self.steps += 1;
            let after = model.step(place.state, op)?;
            if after != ILLEGAL {
                let (choices, mask) = (Choices::one(op), place.mask.with(slot));
                known.push(Move {
                    choices,
                    mask,
                    used: place.used,
                    after,
                });
            }
        }
        let mut helpful = Vec::new();
        if blocked {
            let mut rest = Vec::new();
            for candidate in known {
                let helps = self.enables(model, candidate.after, must)?;
                if helps { &mut helpful } else { &mut rest }.push(candidate);
            }
            known = rest;
        }
        Ok(Moves {
            phase: Phase::Helpful,
            blocked,
            reach,
            helpful,
            known,
            deferred: Vec::new(),
            next: 0,
            unknown: problem.unknown_called[place.position as usize],
            chains: None,
            trying: None,
        })
    }

    fn next_move<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        place: &Place<M, U>,
        moves: &mut Moves<M, U>,
    ) -> Result<Option<Move<M, U>>, S::Error> {
        loop {
            let found = match moves.phase {
                Phase::Helpful => moves.helpful.get(moves.next).copied(),
                Phase::Known => moves.known.get(moves.next).copied(),
                Phase::Deferred => moves.deferred.get(moves.next).copied(),
                Phase::HelpfulUnknown => self.helpful_unknown(problem, model, place, moves)?,
                Phase::Unknown => {
                    let Moves { reach, unknown, .. } = moves;
                    self.next_unknown(problem, model, place, reach, unknown)?
                        .map(|(op, reached)| reached.reached_by(Choices::one(op)))
                }
                Phase::Chains => self.next_chain(problem, model, place, moves)?,
                Phase::Others => self.next_other(problem, model, place, moves)?,
                Phase::Done => return Ok(None),
            };
            if found.is_some() {
                if matches!(moves.phase, Phase::Helpful | Phase::Known | Phase::Deferred) {
                    moves.next += 1;
                }
                return Ok(found);
            }
            moves.next = 0;
            moves.phase = match (moves.phase, self.lean) {
                (Phase::Helpful, false) if moves.blocked => Phase::HelpfulUnknown,
                (Phase::Helpful, true) if moves.blocked => Phase::Chains,
                (Phase::Helpful | Phase::HelpfulUnknown | Phase::Chains, _) => Phase::Known,
                (Phase::Known, true) => Phase::Others,
                (Phase::Known, false) if moves.blocked => Phase::Deferred,
                (Phase::Known, false) => Phase::Unknown,
                (Phase::Deferred | Phase::Unknown | Phase::Others | Phase::Done, _) => Phase::Done,
            };
        }
    }

    /// Return the next unused unknown operation that changes the state, and the place after the
    /// operation.
    fn next_unknown<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        place: &Place<M, U>,
        reach: &Reach,
        unknown: &mut u32,
    ) -> Result<Option<(u32, Place<M, U>)>, S::Error> {
        while *unknown > 0 {
            *unknown -= 1;
            let index = *unknown;
            let op = problem.unknown[index as usize];
            let twin = problem.unknown_twin[index as usize];
            if !problem.matters(op, reach)
                || place.used.has(index)
                || (twin != NONE && !place.used.has(twin))
            {
                continue;
            }
            self.steps += 1;
            let after = model.step(place.state, op)?;
            if after != ILLEGAL && after != place.state {
                let reached = Place {
                    state: after,
                    used: place.used.with(index),
                    ..*place
                };
                return Ok(Some((op, reached)));
            }
        }
        Ok(None)
    }

    fn helpful_unknown<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        place: &Place<M, U>,
        moves: &mut Moves<M, U>,
    ) -> Result<Option<Move<M, U>>, S::Error> {
        let must = problem.returns[place.position as usize];
        let Moves {
            reach,
            unknown,
            deferred,
            ..
        } = moves;
        while let Some((op, reached)) = self.next_unknown(problem, model, place, reach, unknown)? {
            let candidate = reached.reached_by(Choices::one(op));
            if self.enables(model, reached.state, must)? {
                return Ok(Some(candidate));
            }
            deferred.push(candidate);
        }
        Ok(None)
    }

    /// In a lean search, return the move of the unknown operations `chain` and the open operation
    /// `end`, or `None` if `end` is still illegal after them.
    ///
    /// `place` is the place after the operations in `chain`.
    fn end_chain<S: Step>(
        &mut self,
        model: &mut S,
        place: &Place<M, U>,
        chain: Choices,
        end: (u32, u32),
    ) -> Result<Option<Move<M, U>>, S::Error> {
        let (slot, op) = end;
        self.steps += 1;
        let after = model.step(place.state, op)?;
        Ok((after != ILLEGAL).then(|| Move {
            choices: chain.then(op),
            mask: place.mask.with(slot),
            used: place.used,
            after,
        }))
    }

    /// In a lean search, return the next chain of unknown operations, followed by the must-return
    /// operation. Shorter chains come first.
    fn next_chain<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        place: &Place<M, U>,
        moves: &mut Moves<M, U>,
    ) -> Result<Option<Move<M, U>>, S::Error> {
        let must = problem.returns[place.position as usize];
        let slot = problem.return_slots[place.position as usize];
        let called = problem.unknown_called[place.position as usize];
        let steps = self.steps;
        let Moves { reach, chains, .. } = moves;
        let chains = chains.get_or_insert_with(|| {
            let mut seen = Map::default();
            seen.insert(place.state, Antichain::One(place.used));
            Chains {
                stop: steps + CHAIN_EVALUATIONS_MAX,
                length: 0,
                level: vec![(Choices::default(), place.used, place.state)],
                following: Vec::new(),
                seen,
                next: 0,
                unknown: called,
                yielded: false,
            }
        });
        if std::mem::take(&mut chains.yielded) && self.steps >= chains.stop {
            return Ok(None);
        }
        while chains.length < CHAIN_LENGTH_MAX {
            let Some(&(chain, used, state)) = chains.level.get(chains.next) else {
                chains.length += 1;
                chains.level = std::mem::take(&mut chains.following);
                chains.next = 0;
                continue;
            };
            let from = Place {
                used,
                state,
                ..*place
            };
            let found = self.next_unknown(problem, model, &from, reach, &mut chains.unknown)?;
            let Some((op, reached)) = found else {
                chains.next += 1;
                chains.unknown = called;
                continue;
            };
            if chains
                .seen
                .entry(reached.state)
                .or_insert(Antichain::new())
                .dominates(&reached.used)
            {
                continue;
            }
            let ended = self.end_chain(model, &reached, chain.then(op), (slot, must))?;
            if ended.is_some() {
                chains.yielded = true;
                return Ok(ended);
            }
            let longer = (chain.then(op), reached.used, reached.state);
            chains.following.push(longer);
            if self.steps >= chains.stop {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// In a lean search, return the next move of an unknown operation and an open operation that it
    /// makes legal. The must-return operation is left out.
    fn next_other<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        place: &Place<M, U>,
        moves: &mut Moves<M, U>,
    ) -> Result<Option<Move<M, U>>, S::Error> {
        let must = problem.returns[place.position as usize];
        let (writes, reads) = (
            problem.writes.at(place.position),
            problem.reads.at(place.position),
        );
        let Moves {
            reach,
            unknown,
            next,
            trying,
            ..
        } = moves;
        while let Some(&(slot, op)) = writes
            .get(*next)
            .or_else(|| reads.get(next.wrapping_sub(writes.len())))
        {
            if trying.is_none() {
                let skipped = place.mask.has(slot) || op == must || !problem.matters(op, reach);
                if skipped || self.enables(model, place.state, op)? {
                    *next += 1;
                    continue;
                }
                *trying = Some(slot);
                *unknown = problem.unknown_called[place.position as usize];
            }
            while let Some((helper, reached)) =
                self.next_unknown(problem, model, place, reach, unknown)?
            {
                let ended = self.end_chain(model, &reached, Choices::one(helper), (slot, op))?;
                if ended.is_some() {
                    return Ok(ended);
                }
            }
            *trying = None;
            *next += 1;
        }
        Ok(None)
    }
}
