//! Sequential specifications for the searches, with numbers for states and operations.

use crate::bits::Map;

/// The result of an illegal step.
pub const ILLEGAL: u32 = u32::MAX;

/// A specification whose states are numbers below `ILLEGAL`.
pub trait Step {
    /// The error of a step, such as an exception in a Python model.
    type Error;

    /// The initial state.
    fn initial(&self) -> u32;

    /// Return the state after operation `op`, or `ILLEGAL`.
    fn step(&mut self, state: u32, op: u32) -> Result<u32, Self::Error>;
}

/// One operation on a register. Equal values have the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegisterOperation {
    /// A write of this value.
    Write(u32),
    /// A read that returned this value.
    Read(u32),
    /// A read whose answer was lost.
    ReadUnknown,
    /// A compare-and-set that replaced the first value by the second.
    Cas(u32, u32),
    /// A compare-and-set that failed, since the register did not hold this value.
    CasFailed(u32),
    /// A compare-and-set whose answer was lost.
    CasUnknown(u32, u32),
    /// An operation with an answer that is illegal in every state.
    Never,
}

impl RegisterOperation {
    /// Whether the operation never changes the state.
    pub fn read_only(self) -> bool {
        matches!(self, Self::Read(_) | Self::ReadUnknown | Self::CasFailed(_))
    }
}

/// The model of one register. Its steps are too cheap to memoize.
pub struct Register {
    initial: u32,
    operations: Vec<RegisterOperation>,
}

impl Register {
    /// Create a register that holds the value with the number `initial` at first.
    pub fn new(initial: u32, operations: Vec<RegisterOperation>) -> Self {
        Self {
            initial,
            operations,
        }
    }

    /// Return for each operation whether it never changes the state.
    pub fn read_only(&self) -> Vec<bool> {
        self.operations
            .iter()
            .map(|operation| operation.read_only())
            .collect()
    }

    /// Number the classes of equal operations. Operations for which `wanted` is false get 0.
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
