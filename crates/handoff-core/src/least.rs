//! What an amount must be enough for, in the words of a refusal.

/// What an amount must be enough for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Least {
    /// A destination, from its first tick to its wind-down.
    ToBegin,
    /// A tick more of one that ran out.
    ToGoOn,
    /// A budget that is taken out of the live transfer's.
    ToCarve,
}

impl Least {
    pub(crate) const fn there_is(self) -> &'static str {
        match self {
            Self::ToBegin | Self::ToGoOn => "the budget",
            Self::ToCarve => "what the live transfer has neither spent, leased nor reserved",
        }
    }

    pub(crate) const fn is_needed(self) -> &'static str {
        match self {
            Self::ToBegin => "the least, for the wind-down and one tick,",
            Self::ToGoOn => "the least, for what is spent and leased and one tick more,",
            Self::ToCarve => "the budget to be carved out of it",
        }
    }
}
