//! Points in time: milliseconds since 1970 in UTC, written as RFC 3339 with exactly three decimals.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time by the store's clock. Durations are plain integers in `*_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// Why a text is not a point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a time is RFC 3339 in UTC, such as 2026-12-01T09:30:00.000Z")]
pub struct InvalidTimestamp;

impl Timestamp {
    /// So many milliseconds after 1970-01-01T00:00:00Z.
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// The point so many milliseconds later.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms))
    }

    /// Milliseconds from `earlier` until this point; zero if it is not later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        let ms = self.0.saturating_sub(earlier.0);
        if ms > 0 { ms.unsigned_abs() } else { 0 }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            // Beyond the year 9999 there is no RFC 3339 form; the number still says which.
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let time: jiff::Timestamp = text.parse().map_err(|_| InvalidTimestamp)?;
        Ok(Self(time.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H-108
    #[test]
    fn times_print_with_milliseconds_and_read_back() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_796_117_400_007, "2026-12-01T09:30:00.007Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::from_unix_ms(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp::from_unix_ms(ms)));
        }
    }

    #[test]
    fn a_difference_is_never_negative() {
        let (early, late) = (Timestamp::from_unix_ms(5), Timestamp::from_unix_ms(9));
        assert_eq!((late.ms_since(early), early.ms_since(late)), (4, 0));
        assert_eq!(early.plus_ms(4), late);
    }
}
