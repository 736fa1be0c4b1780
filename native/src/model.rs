//! Sequential specifications as the searches see them: numbered states and operations.

use crate::bits::Map;

/// The answer of an illegal step.
pub const ILLEGAL: u32 = u32::MAX;

/// A specification whose states are numbers below `ILLEGAL`.
pub trait Step {
    /// The failure of a step.
    type Error;

    /// The first state.
    fn initial(&self) -> u32;

    /// The state after operation `op`, or `ILLEGAL`.
    fn step(&mut self, state: u32, op: u32) -> Result<u32, Self::Error>;
}

/// One operation on a register; the values are numbers, equal ones for equal values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegisterOperation {
    /// Replaces the value.
    Write(u32),
    /// Saw this value.
    Read(u32),
    /// A read whose answer was lost.
    ReadUnknown,
    /// Found the first value and replaced it by the second.
    Cas(u32, u32),
    /// Found another value than this.
    CasFailed(u32),
    /// A compare-and-set whose answer was lost.
    CasUnknown(u32, u32),
    /// Its answer is impossible.
    Never,
}

impl RegisterOperation {
    /// Whether the state after it is always the one before.
    pub fn read_only(self) -> bool {
        matches!(self, Self::Read(_) | Self::ReadUnknown | Self::CasFailed(_))
    }
}

/// One register: steps are so cheap that nothing is remembered.
pub struct Register {
    initial: u32,
    operations: Vec<RegisterOperation>,
}

impl Register {
    /// A register that starts with the value of number `initial`.
    pub fn new(initial: u32, operations: Vec<RegisterOperation>) -> Self {
        Self {
            initial,
            operations,
        }
    }

    /// A mask of the operations that never change the state.
    pub fn read_only(&self) -> Vec<bool> {
        self.operations
            .iter()
            .map(|operation| operation.read_only())
            .collect()
    }

    /// Classes of operations that step equally, where `wanted` is true; 0 for others.
    pub fn classes(&self, wanted: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut numbers: Map<RegisterOperation, u32> = Map::default();
        let class = |(number, operation): (usize, &RegisterOperation)| {
            let next = numbers.len() as u32 + 1;
            if wanted(number) {
                *numbers.entry(*operation).or_insert(next)
            } else {
                0
            }
        };
        self.operations.iter().enumerate().map(class).collect()
    }
}

impl Step for Register {
    type Error = std::convert::Infallible;

    fn initial(&self) -> u32 {
        self.initial
    }

    #[inline]
    fn step(&mut self, state: u32, op: u32) -> Result<u32, Self::Error> {
        let pass = |legal: bool, after: u32| if legal { after } else { ILLEGAL };
        Ok(match self.operations[op as usize] {
            RegisterOperation::Write(value) => value,
            RegisterOperation::Read(value) => pass(state == value, state),
            RegisterOperation::ReadUnknown => state,
            RegisterOperation::Cas(old, new) => pass(state == old, new),
            RegisterOperation::CasFailed(old) => pass(state != old, state),
            RegisterOperation::CasUnknown(old, new) => {
                pass(true, if state == old { new } else { state })
            }
            RegisterOperation::Never => ILLEGAL,
        })
    }
}
