//! What a call may cost at the most, and how far it is lowered to fit what is left.

use handoff_protocol::NanoUsd;

use crate::price::ModelPrice;
use crate::wire::Demand;

/// A call's upper bound as a function of its output limit.
#[derive(Debug, Clone)]
pub(crate) struct Bid {
    price: ModelPrice,
    /// Tokens of input at the most.
    input: u64,
    choices: u64,
    extra_output: u64,
    /// Output tokens per choice that the caller wants, or gets by default.
    wanted: u64,
    /// It is not lowered below this.
    floor: u64,
}

/// A call that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    /// What is held.
    pub(crate) amount_usd: NanoUsd,
    /// Output tokens per choice.
    pub(crate) max_tokens: u64,
    /// Fewer than were wanted.
    pub(crate) lowered: bool,
}

/// The model has no bound for what is attached to the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoBound;

impl Bid {
    /// The bid of a request of so many bytes. A token has at least one byte, so a text has at most as many
    /// tokens as bytes; what is attached by reference needs a bound of the operator's.
    pub(crate) fn new(
        price: &ModelPrice,
        demand: &Demand,
        body_bytes: u64,
        default_max_tokens: u64,
        floor: u64,
    ) -> Result<Self, NoBound> {
        let attached = match (demand.attachments, price.attachment_tokens) {
            (0, _) => 0,
            (count, Some(each)) => count.saturating_mul(each),
            (_, None) => return Err(NoBound),
        };
        let most = price.max_output.unwrap_or(u64::MAX);
        let wanted = demand.max_tokens.unwrap_or(default_max_tokens).min(most).max(1);
        Ok(Self {
            price: price.clone(),
            input: body_bytes.saturating_add(attached),
            choices: demand.choices,
            extra_output: demand.extra_output,
            wanted,
            floor: floor.clamp(1, wanted),
        })
    }

    /// The most the call can cost with this output limit.
    pub(crate) fn amount(&self, max_tokens: u64) -> NanoUsd {
        let output = max_tokens.saturating_mul(self.choices).saturating_add(self.extra_output);
        self.price.bound(self.input, output)
    }

    /// As much of the call as fits.
    ///
    /// # Errors
    /// What it takes at the least.
    pub(crate) fn fit(&self, available: NanoUsd) -> Result<Grant, NanoUsd> {
        let whole = self.amount(self.wanted);
        if whole <= available {
            return Ok(Grant { amount_usd: whole, max_tokens: self.wanted, lowered: false });
        }
        let output = self.price.affordable_output(self.input, available);
        let max_tokens = output.saturating_sub(self.extra_output) / self.choices;
        let amount_usd = self.amount(max_tokens);
        if max_tokens < self.floor || amount_usd > available {
            return Err(self.amount(self.floor));
        }
        Ok(Grant { amount_usd, max_tokens, lowered: true })
    }

    /// Tokens of input at the most.
    pub(crate) fn input(&self) -> u64 {
        self.input
    }

    /// What tokens cost.
    pub(crate) fn price(&self) -> &ModelPrice {
        &self.price
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::price::per_million_tokens;

    fn price(input: &str, output: &str) -> ModelPrice {
        let pico = |text| per_million_tokens(text).expect("a price");
        ModelPrice {
            input: pico(input),
            cache_read: pico(input),
            cache_write_5m: pico(input),
            cache_write_1h: pico(input),
            output: pico(output),
            attachment_tokens: None,
            max_output: None,
        }
    }

    fn demand(max_tokens: Option<u64>, choices: u64) -> Demand {
        Demand {
            model: "m".to_owned(),
            stream: false,
            wants_usage: false,
            max_tokens,
            choices,
            extra_output: 0,
            attachments: 0,
        }
    }

    fn usd(text: &str) -> NanoUsd {
        text.parse().expect("an amount")
    }

    /// H-77
    #[test]
    fn a_call_is_lowered_to_what_the_rest_buys_and_no_further_than_the_floor() {
        // $1 per million in, $10 out: 1000 bytes hold $0.001, 1000 tokens out $0.01.
        let bid = Bid::new(&price("1", "10"), &demand(Some(1000), 1), 1000, 4096, 256).expect("a bound");
        let whole = Grant { amount_usd: usd("0.011"), max_tokens: 1000, lowered: false };
        assert_eq!(bid.fit(usd("0.011")), Ok(whole));
        let lowered = Grant { amount_usd: usd("0.00999"), max_tokens: 899, lowered: true };
        assert_eq!(bid.fit(usd("0.009999999")), Ok(lowered));
        let floor = Grant { amount_usd: usd("0.00356"), max_tokens: 256, lowered: true };
        assert_eq!(bid.fit(usd("0.00356")), Ok(floor));
        assert_eq!(bid.fit(usd("0.003559999")), Err(usd("0.00356")));
        assert_eq!(bid.fit(NanoUsd::ZERO), Err(usd("0.00356")));
    }

    #[test]
    fn a_call_that_wants_less_than_the_floor_is_not_lowered_at_all() {
        let bid = Bid::new(&price("1", "10"), &demand(Some(10), 1), 0, 4096, 256).expect("a bound");
        assert_eq!(bid.fit(usd("0.00009")), Err(usd("0.0001")));
    }

    #[test]
    fn case_m04_a_call_without_a_limit_holds_the_default_and_not_the_rest() {
        let bid = Bid::new(&price("1", "10"), &demand(None, 1), 1000, 4096, 256).expect("a bound");
        assert_eq!(bid.fit(usd("1000")).map(|grant| grant.amount_usd), Ok(usd("0.04196")));
    }

    #[test]
    fn several_choices_and_attachments_count() {
        let three = Bid::new(&price("1", "10"), &demand(Some(100), 3), 0, 4096, 1).expect("a bound");
        assert_eq!(three.amount(100), usd("0.003"));
        let mut attached = demand(Some(100), 1);
        attached.attachments = 2;
        assert!(Bid::new(&price("1", "10"), &attached, 0, 4096, 1).is_err());
        let bounded = ModelPrice { attachment_tokens: Some(5000), ..price("1", "10") };
        let bid = Bid::new(&bounded, &attached, 0, 4096, 1).expect("a bound");
        assert_eq!(bid.amount(0), usd("0.01"));
    }

    #[test]
    fn a_free_model_fits_whatever_is_left() {
        let bid = Bid::new(&price("0", "0"), &demand(Some(100), 1), 10, 4096, 256).expect("a bound");
        assert!(bid.fit(NanoUsd::from_nano(1)).is_ok_and(|grant| !grant.lowered));
    }

    proptest! {
        #[test]
        fn what_is_granted_fits(input in 0..100_000u64, wanted in 1..100_000u64, choices in 1..5u64, extra in 0..1000u64, nano in 0..1_000_000_000i64) {
            let demand = Demand { extra_output: extra, ..demand(Some(wanted), choices) };
            let bid = Bid::new(&price("3", "15"), &demand, input, 4096, 256).expect("a bound");
            let available = NanoUsd::from_nano(nano);
            match bid.fit(available) {
                Ok(grant) => {
                    prop_assert!(grant.amount_usd <= available);
                    prop_assert_eq!(grant.amount_usd, bid.amount(grant.max_tokens));
                    prop_assert!(grant.max_tokens >= 256.min(wanted) && grant.max_tokens <= wanted);
                }
                Err(required) => prop_assert!(required > available),
            }
        }
    }
}
