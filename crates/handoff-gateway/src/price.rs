//! Prices: pico-USD per token, from decimal strings of US dollars per million tokens. A model without a row
//! has no price, which is not a price of zero.

use handoff_protocol::NanoUsd;
use handoff_protocol::money::{PicoTotal, PicoUsd};
use handoff_protocol::totals::Tokens;

/// What one model's tokens cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrice {
    /// Uncached input.
    pub input: PicoUsd,
    /// Input read from a cache.
    pub cache_read: PicoUsd,
    /// Input written to a five-minute cache.
    pub cache_write_5m: PicoUsd,
    /// Input written to a one-hour cache.
    pub cache_write_1h: PicoUsd,
    /// Output, reasoning included.
    pub output: PicoUsd,
    /// The most input tokens that one image, file or sound in a request can count as; without it such a
    /// request has no upper bound and is refused.
    pub attachment_tokens: Option<u64>,
    /// The most output tokens that the model produces, where the operator says so.
    pub max_output: Option<u64>,
}

/// Why a text is not a price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a price: US dollars per million tokens as digits with at most six decimals")]
pub struct InvalidPrice(String);

const DECIMALS: usize = 6;

/// One micro-dollar per million tokens is one pico-dollar per token, so six decimals are exact.
///
/// # Errors
/// Anything but digits with at most one point and six decimals, or more than a u64 of pico-USD.
pub fn per_million_tokens(text: &str) -> Result<PicoUsd, InvalidPrice> {
    let invalid = || InvalidPrice(text.chars().take(40).collect());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > DECIMALS {
        return Err(invalid());
    }
    let pico = format!("{whole}{fraction:0<DECIMALS$}");
    pico.parse().map(PicoUsd::from_pico).map_err(|_| invalid())
}

impl ModelPrice {
    /// What these tokens cost, rounded up once.
    pub fn cost(&self, tokens: &Tokens) -> NanoUsd {
        self.input
            .times(tokens.input)
            .plus(self.cache_read.times(tokens.cache_read))
            .plus(self.cache_write_5m.times(tokens.cache_write_5m))
            .plus(self.cache_write_1h.times(tokens.cache_write_1h))
            .plus(self.output.times(tokens.output))
            .round_up()
    }

    /// The most that so many tokens can cost, whatever cache they meet.
    pub fn bound(&self, input: u64, output: u64) -> NanoUsd {
        self.input_bound(input).plus(self.output.times(output)).round_up()
    }

    /// How many output tokens `available` pays for on top of so many input tokens.
    pub fn affordable_output(&self, input: u64, available: NanoUsd) -> u64 {
        // Found by bisection over `bound` itself, so that both can never disagree about rounding.
        let fits = |output: u64| self.bound(input, output) <= available;
        if !fits(0) {
            return 0;
        }
        let (mut low, mut high) = (0, u64::MAX);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    fn input_bound(&self, tokens: u64) -> PicoTotal {
        let dearest = self.input.max(self.cache_read).max(self.cache_write_5m).max(self.cache_write_1h);
        dearest.times(tokens)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn price(input: &str, cache_read: &str, write_1h: &str, output: &str) -> ModelPrice {
        let pico = |text| per_million_tokens(text).expect("a price");
        ModelPrice {
            input: pico(input),
            cache_read: pico(cache_read),
            cache_write_5m: pico(input),
            cache_write_1h: pico(write_1h),
            output: pico(output),
            attachment_tokens: None,
            max_output: None,
        }
    }

    #[test]
    fn published_prices_are_exact() {
        for (text, pico) in
            [("3", 3_000_000), ("0.075", 75_000), ("0", 0), ("0.000001", 1), ("15.00", 15_000_000)]
        {
            assert_eq!(per_million_tokens(text), Ok(PicoUsd::from_pico(pico)), "{text}");
        }
        for bad in ["", "-1", "1e3", ".5", "1.", "0.0000001", "NaN", "99999999999999999999", "1,5", "٣"] {
            assert!(per_million_tokens(bad).is_err(), "{bad}");
        }
    }

    /// Hand-checked figures of cases M-22 and M-23.
    #[test]
    fn case_m22_and_m23_costs_are_exact() {
        let sonnet = price("3", "0.3", "6", "15");
        let tokens =
            Tokens { input: 5, cache_read: 100_000, cache_write_1h: 1_000, output: 10, ..Tokens::default() };
        assert_eq!(sonnet.cost(&tokens).to_string(), "0.036165");
        let gpt_4o = price("2.5", "1.25", "0", "10");
        let tokens = Tokens { input: 56, cache_read: 64, output: 20, ..Tokens::default() };
        assert_eq!(gpt_4o.cost(&tokens).to_string(), "0.00042");
        let forty_micro = price("40", "0", "0", "0").cost(&Tokens { input: 1, ..Tokens::default() });
        assert_eq!((0..1000).map(|_| forty_micro).sum::<NanoUsd>().to_string(), "0.04");
    }

    proptest! {
        #[test]
        fn affordable_output_is_the_most_that_fits(input in 0..100_000u64, nano in 0..10_000_000i64, output in 0..50_000u64) {
            let price = price("3", "0.3", "6", &format!("0.{output:06}"));
            let available = NanoUsd::from_nano(nano);
            let most = price.affordable_output(input, available);
            if most > 0 {
                prop_assert!(price.bound(input, most) <= available);
            }
            if most < u64::MAX {
                prop_assert!(price.bound(input, most + 1) > available || price.bound(input, 0) > available);
            }
        }

        #[test]
        fn no_usage_within_the_bound_costs_more_than_it(input in 0..1_000_000u64, cached in 0..1_000_000u64, output in 0..1_000_000u64) {
            let price = price("3", "0.3", "6", "15");
            let (input, cache_read) = (input.saturating_sub(cached), cached.min(input));
            let tokens = Tokens { input, cache_read, output, ..Tokens::default() };
            prop_assert!(price.cost(&tokens) <= price.bound(input + cache_read, output));
        }
    }
}
