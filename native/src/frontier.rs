//! The breadth-first search over return events, which makes the same moves as `frontier.py`.

use std::collections::{BTreeMap, VecDeque};

use crate::bits::{Antichain, Bits, Map};
use crate::depth::Status;
use crate::model::{Step, ILLEGAL};
use crate::problem::{Problem, NONE};

/// One way in which the history up to some return can have happened.
#[derive(Clone, Copy)]
pub struct Configuration<const M: usize, const U: usize> {
    /// The slots of open operations that are linearized.
    pub mask: Bits<M>,
    /// The number of the model's state.
    pub state: u32,
    /// The unknown operations that took effect.
    pub used: Bits<U>,
    path: u32,
}

impl<const M: usize, const U: usize> Configuration<M, U> {
    /// The last node of the configuration's path, or -1 for an empty path.
    pub fn path(&self) -> i64 {
        number(self.path)
    }
}

fn number(path: u32) -> i64 {
    if path == NONE {
        -1
    } else {
        i64::from(path)
    }
}

type Chains<const M: usize, const U: usize> = Map<(u32, Bits<M>), Antichain<U>>;

/// A resumable breadth-first search.
pub struct Frontier<const M: usize, const U: usize> {
    configurations_max: usize,
    layers: BTreeMap<u32, Vec<Configuration<M, U>>>,
    chains: Map<u32, Chains<M, U>>,
    pending: VecDeque<Configuration<M, U>>,
    surviving: Vec<Configuration<M, U>>,
    paths: Vec<(u32, u32)>, // (previous path or NONE, choice)
    current: bool,          // whether a layer is being expanded
    winner: Option<u32>,
    /// The number of remembered configurations.
    pub configurations: usize,
    /// The number of attempted steps.
    pub steps: u64,
    /// The position of the next return to pass.
    pub best: u32,
    /// The state of the search.
    pub status: Status,
}

impl<const M: usize, const U: usize> Frontier<M, U> {
    /// Start at the beginning of the history.
    pub fn new<S: Step>(
        problem: &Problem,
        model: &mut S,
        configurations_max: usize,
    ) -> Result<Self, S::Error> {
        let mut search = Self {
            configurations_max,
            layers: BTreeMap::new(),
            chains: Map::default(),
            pending: VecDeque::new(),
            surviving: Vec::new(),
            paths: Vec::new(),
            current: false,
            winner: None,
            configurations: 0,
            steps: 0,
            best: 0,
            status: Status::Running,
        };
        let start = Configuration {
            mask: Bits::EMPTY,
            state: model.initial(),
            used: Bits::EMPTY,
            path: NONE,
        };
        search.arrive(problem, model, 0, start, None)?;
        search.next_layer();
        Ok(search)
    }

    /// The branching choices of the configuration that passed all returns; empty without one.
    pub fn choices(&self) -> Vec<u32> {
        self.path(self.winner.unwrap_or(NONE))
    }

    /// The nodes on the paths of `configurations` as (node, previous node or -1, choice). Each node
    /// comes after its previous node.
    pub fn paths_of(&self, configurations: &[Configuration<M, U>]) -> Vec<(i64, i64, u32)> {
        let mut wanted = vec![false; self.paths.len()];
        for config in configurations {
            let mut path = config.path;
            while path != NONE && !std::mem::replace(&mut wanted[path as usize], true) {
                path = self.paths[path as usize].0;
            }
        }
        let nodes = self.paths.iter().zip(&wanted).zip(0..);
        nodes
            .filter(|((_, wanted), _)| **wanted)
            .map(|((&(previous, choice), _), node)| (node, number(previous), choice))
            .collect()
    }

    fn path(&self, mut path: u32) -> Vec<u32> {
        let mut found = Vec::new();
        while path != NONE {
            let (previous, choice) = self.paths[path as usize];
            found.push(choice);
            path = previous;
        }
        found.reverse();
        found
    }

    /// The configurations before the furthest return that are not dominated.
    pub fn remaining(&self) -> Vec<Configuration<M, U>> {
        self.surviving
            .iter()
            .filter(|config| self.stands(self.best, config))
            .copied()
            .collect()
    }

    fn stands(&self, position: u32, config: &Configuration<M, U>) -> bool {
        self.chains
            .get(&position)
            .and_then(|chains| chains.get(&(config.state, config.mask)))
            .is_some_and(|chain| chain.contains(&config.used))
    }

    /// Search until the total number of steps is `limit`.
    pub fn run<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        limit: u64,
    ) -> Result<(), S::Error> {
        while self.status == Status::Running && self.steps < limit {
            match self.pending.pop_front() {
                None => self.next_layer(),
                Some(config) if self.stands(self.best, &config) => {
                    self.expand(problem, model, &config)?;
                }
                Some(_) => {} // a configuration that arrived later dominates it
            }
        }
        Ok(())
    }

    /// Let a configuration pass returns and absorb reads, then keep it unless it is dominated.
    /// `choice` is the last choice, which `config.path` does not contain yet.
    fn arrive<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        position: u32,
        mut config: Configuration<M, U>,
        choice: Option<u32>,
    ) -> Result<(), S::Error> {
        let (position, mask) = problem.advance(model, position, config.mask, config.state)?;
        config.mask = mask;
        let wins = position == problem.end();
        if !wins {
            let chains = self.chains.entry(position).or_default();
            let chain = chains
                .entry((config.state, mask))
                .or_insert(Antichain::new());
            if chain.dominates(&config.used) {
                return Ok(());
            }
        }
        if let Some(choice) = choice {
            self.paths.push((config.path, choice));
            config.path = self.paths.len() as u32 - 1;
        }
        if wins {
            self.winner = Some(config.path);
            self.status = Status::Found;
            return Ok(());
        }
        self.configurations += 1;
        if position == self.best && self.current {
            self.pending.push_back(config);
            self.surviving.push(config);
        } else {
            self.layers.entry(position).or_default().push(config);
        }
        if self.configurations >= self.configurations_max && self.status == Status::Running {
            self.status = Status::Full;
        }
        Ok(())
    }

    /// Move to the earliest layer that has configurations. Without one, the search is exhausted.
    fn next_layer(&mut self) {
        if self.status != Status::Running {
            return;
        }
        let Some((position, layer)) = self.layers.pop_first() else {
            self.status = Status::Exhausted;
            return;
        };
        if self.current {
            self.chains.remove(&self.best);
            self.configurations -= self.surviving.len();
        }
        self.current = true;
        self.best = position;
        let arrived = layer.len();
        self.surviving = layer
            .into_iter()
            .filter(|config| self.stands(position, config))
            .collect();
        self.configurations -= arrived - self.surviving.len();
        self.pending.extend(&self.surviving);
    }

    fn expand<S: Step>(
        &mut self,
        problem: &Problem,
        model: &mut S,
        config: &Configuration<M, U>,
    ) -> Result<(), S::Error> {
        let position = self.best;
        let reach = problem.relevant(position, &config.mask);
        for &(slot, op) in problem.writes.at(position) {
            if config.mask.has(slot) || !problem.matters(op, &reach) {
                continue;
            }
            self.steps += 1;
            let state = model.step(config.state, op)?;
            if state != ILLEGAL {
                let next = Configuration {
                    mask: config.mask.with(slot),
                    state,
                    ..*config
                };
                self.arrive(problem, model, position, next, Some(op))?;
            }
        }
        for index in 0..problem.unknown_called[position as usize] {
            let op = problem.unknown[index as usize];
            let twin = problem.unknown_twin[index as usize];
            if !problem.matters(op, &reach)
                || config.used.has(index)
                || (twin != NONE && !config.used.has(twin))
            {
                continue;
            }
            self.steps += 1;
            let state = model.step(config.state, op)?;
            if state != ILLEGAL && state != config.state {
                let next = Configuration {
                    state,
                    used: config.used.with(index),
                    ..*config
                };
                self.arrive(problem, model, position, next, Some(op))?;
            }
        }
        Ok(())
    }
}
