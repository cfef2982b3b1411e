//! Money as integers: totals in nano-USD, prices in pico-USD per token. No float touches an amount.
//!
//! On the wire an amount is a decimal string with at most nine decimals. A JSON number, an exponent, a sign,
//! NaN, or a tenth decimal is refused: rounding an amount that somebody else wrote would invent money.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NANO_PER_USD: i64 = 1_000_000_000;
const DECIMALS: usize = 9;

/// An amount in nano-USD (10⁻⁹ US dollars), never negative on the wire.
///
/// ```
/// use handoff_protocol::NanoUsd;
///
/// let spent: NanoUsd = "0.662".parse()?;
/// assert_eq!(spent.nano(), 662_000_000);
/// assert!("1e3".parse::<NanoUsd>().is_err());
/// # Ok::<(), handoff_protocol::money::InvalidAmount>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NanoUsd(i64);

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAmount {
    /// Not digits with at most one point.
    #[error("'{0}' is not an amount: write digits with at most one point, such as \"4.50\"")]
    NotDecimal(String),
    /// More than nine decimals.
    #[error("'{0}' is finer than a nano-dollar: at most nine decimals")]
    TooFine(String),
    /// More than an i64 of nano-USD holds.
    #[error("'{0}' is more than 9223372036.854775807")]
    TooLarge(String),
}

impl NanoUsd {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest amount.
    pub const MAX: Self = Self(i64::MAX);

    /// An amount of so many nano-USD.
    pub const fn from_nano(nano: i64) -> Self {
        Self(nano)
    }

    /// The amount in nano-USD.
    pub const fn nano(self) -> i64 {
        self.0
    }

    /// The sum, or the largest amount where it would not fit: a total that is too high stops spending, one
    /// that wraps would not.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left after taking `other` away, never below zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        let left = self.0.saturating_sub(other.0);
        Self(if left > 0 { left } else { 0 })
    }

    /// The sum if it fits.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

impl std::iter::Sum for NanoUsd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::plus)
    }
}

impl FromStr for NanoUsd {
    type Err = InvalidAmount;

    fn from_str(text: &str) -> Result<Self, InvalidAmount> {
        let shown = || text.chars().take(40).collect::<String>();
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(InvalidAmount::NotDecimal(shown()));
        }
        if fraction.len() > DECIMALS {
            return Err(InvalidAmount::TooFine(shown()));
        }
        let too_large = || InvalidAmount::TooLarge(shown());
        let whole: i64 = whole.parse().map_err(|_| too_large())?;
        let fraction: i64 = format!("{fraction:0<DECIMALS$}").parse().map_err(|_| too_large())?;
        whole
            .checked_mul(NANO_PER_USD)
            .and_then(|nano| nano.checked_add(fraction))
            .map(Self)
            .ok_or_else(too_large)
    }
}

impl fmt::Display for NanoUsd {
    /// At least two decimals, at most nine, no trailing zeros beyond the second.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nano = self.0.unsigned_abs();
        let fraction = format!("{:09}", nano % NANO_PER_USD.unsigned_abs());
        let kept = fraction.trim_end_matches('0').len().max(2);
        write!(f, "{sign}{}.{}", nano / NANO_PER_USD.unsigned_abs(), &fraction[..kept])
    }
}

impl Serialize for NanoUsd {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NanoUsd {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Amount;
        impl serde::de::Visitor<'_> for Amount {
            type Value = NanoUsd;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("invalid_amount: a decimal string such as \"4.50\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<NanoUsd, E> {
                text.parse().map_err(|error| E::custom(format_args!("invalid_amount: {error}")))
            }
        }
        from.deserialize_str(Amount)
    }
}

impl schemars::JsonSchema for NanoUsd {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Usd".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^[0-9]{1,10}(\\.[0-9]{1,9})?$",
            "description": "US dollars as a decimal string with at most nine decimals"
        })
    }
}

/// A price in pico-USD (10⁻¹² US dollars) per unit: per token, per byte or per millisecond.
///
/// One micro-dollar per million tokens is one pico-dollar per token, so every published price is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PicoUsd(u64);

impl PicoUsd {
    /// A price of so many pico-USD per unit.
    pub const fn from_pico(pico: u64) -> Self {
        Self(pico)
    }

    /// The price in pico-USD per unit.
    pub const fn pico(self) -> u64 {
        self.0
    }

    /// What so many units cost, in pico-USD: exact, for summing several kinds before one rounding.
    pub const fn times(self, units: u64) -> PicoTotal {
        PicoTotal(self.0 as u128 * units as u128)
    }
}

/// A sum of pico-USD that has not been rounded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PicoTotal(u128);

impl PicoTotal {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Rounded up to nano-USD: once per settled call, in favour of whoever pays the provider.
    pub fn round_up(self) -> NanoUsd {
        NanoUsd(i64::try_from(self.0.div_ceil(1000)).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_amount_reads_back_as_itself(nano in 0..i64::MAX) {
            let amount = NanoUsd::from_nano(nano);
            prop_assert_eq!(amount.to_string().parse::<NanoUsd>(), Ok(amount));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<NanoUsd>();
        }
    }

    #[test]
    fn amounts_print_in_one_form() {
        for (nano, text) in
            [(0, "0.00"), (4_500_000_000, "4.50"), (1, "0.000000001"), (85_856_250, "0.08585625")]
        {
            assert_eq!(NanoUsd::from_nano(nano).to_string(), text);
        }
    }

    /// H-74
    #[test]
    fn what_is_not_a_plain_decimal_is_refused() {
        for bad in
            ["", ".", "1.", ".5", "-1", "+1", "1e3", "NaN", "inf", "1,5", " 1", "1 ", "0x1", "1_0", "١"]
        {
            assert!(matches!(bad.parse::<NanoUsd>(), Err(InvalidAmount::NotDecimal(_))), "{bad}");
        }
        assert!(matches!("0.0000000001".parse::<NanoUsd>(), Err(InvalidAmount::TooFine(_))));
        for bad in ["9223372036.854775808", "99999999999999999999"] {
            assert!(matches!(bad.parse::<NanoUsd>(), Err(InvalidAmount::TooLarge(_))), "{bad}");
        }
    }

    #[test]
    fn a_json_number_is_refused_by_name() {
        for bad in ["1.5", "1", "-0", "1e400", "null", "true"] {
            let error = serde_json::from_str::<NanoUsd>(bad).expect_err(bad);
            assert!(error.to_string().contains("invalid_amount") || bad == "1e400", "{bad}: {error}");
        }
    }

    /// H-74
    #[test]
    fn rounding_happens_once_and_up() {
        let price = PicoUsd::from_pico(1);
        assert_eq!(price.times(1).round_up(), NanoUsd::from_nano(1));
        assert_eq!(price.times(1000).plus(price.times(1000)).round_up(), NanoUsd::from_nano(2));
        assert_eq!(PicoUsd::from_pico(u64::MAX).times(u64::MAX).round_up(), NanoUsd::MAX);
    }
}
