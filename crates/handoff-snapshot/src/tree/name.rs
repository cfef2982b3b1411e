//! Names that a file system allows and JSON does not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name or path of any bytes: a string where it is UTF-8, else `{"base64": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Vec<u8>);

impl Name {
    /// The name for people; bytes that are not UTF-8 are replaced.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum NameForm {
    Text(String),
    Bytes(Base64),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Base64 {
    base64: String,
}

impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => Base64 { base64: STANDARD.encode(&self.0) }.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match NameForm::deserialize(from)? {
            NameForm::Text(text) => Ok(Self(text.into_bytes())),
            NameForm::Bytes(Base64 { base64 }) => {
                STANDARD.decode(base64).map(Self).map_err(serde::de::Error::custom)
            }
        }
    }
}

impl JsonSchema for Name {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        NameForm::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_of_any_bytes_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let name = Name(bytes);
            let text = serde_json::to_string(&name).expect("prints");
            prop_assert_eq!(serde_json::from_str::<Name>(&text).expect("its own text"), name);
        }
    }
}
