//! Transfer tokens: minted and verified here, judged in the core.
//!
//! A token is a compact JWT (RFC 7519, RFC 7515): `header.claims.signature`, HS256 and nothing else. The
//! header is one exact text per key, so there is nothing in it to negotiate: a header that is not byte for byte
//! one of ours is refused before anything is decoded. Times are in whole seconds and are not looked at here;
//! the core judges them in the store's time.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use handoff_core::token::TokenClaims;
use handoff_protocol::limits::TOKEN_SECRET_BYTES;
use handoff_protocol::request::{Operation, TokenText};
use handoff_protocol::{NanoUsd, TierName, Timestamp, TokenId, TransferId, json};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// What every token says that it is for.
const AUDIENCE: &str = "handoff-transfer";
/// Bytes of the longest token that is looked at; ours have about 400.
const TOKEN_BYTES: usize = 2048;

/// The keys that tokens are signed with: the present one, and former ones that still verify while tokens signed
/// with them may be out. Debug output shows key ids only.
pub struct TokenKeys {
    present: Key,
    former: Vec<Key>,
}

/// A secret that is too short to sign with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret for transfer tokens has at least {TOKEN_SECRET_BYTES} bytes")]
pub struct SecretTooShort;

/// The text is not a token of ours. Deliberately without a reason: whoever forges learns nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the transfer token is malformed, forged or of another algorithm")]
pub struct InvalidToken;

impl TokenKeys {
    /// Signs with `present`; verifies with it and with the former ones.
    ///
    /// # Errors
    /// Where a secret is too short.
    pub fn new(
        present: SecretSlice<u8>,
        former: impl IntoIterator<Item = SecretSlice<u8>>,
    ) -> Result<Self, SecretTooShort> {
        let former = former.into_iter().map(Key::new).collect::<Result<_, _>>()?;
        Ok(Self { present: Key::new(present)?, former })
    }

    /// The token with these claims.
    pub fn mint(&self, claims: &TokenClaims) -> TokenText {
        let claims = serde_json::to_vec(&Claims::of(claims)).expect("plain data always prints");
        let signed = format!("{}.{}", self.present.header, BASE64.encode(claims));
        let signature = self.present.mac(&signed).finalize().into_bytes();
        TokenText::new(format!("{signed}.{}", BASE64.encode(signature)))
    }

    /// The claims of a token that one of the keys has signed.
    ///
    /// # Errors
    /// For every text that is not exactly what [`TokenKeys::mint`] makes.
    pub fn verify(&self, token: &TokenText) -> Result<TokenClaims, InvalidToken> {
        let text = token.expose();
        if text.len() > TOKEN_BYTES {
            return Err(InvalidToken);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(InvalidToken)?;
        let (header, claims) = signed.split_once('.').ok_or(InvalidToken)?;
        let key = self.keys().find(|key| key.header == header).ok_or(InvalidToken)?;
        let signature = BASE64.decode(signature).map_err(|_| InvalidToken)?;
        key.mac(signed).verify_slice(&signature).map_err(|_| InvalidToken)?;
        let claims = BASE64.decode(claims).map_err(|_| InvalidToken)?;
        json::check(&claims).map_err(|_| InvalidToken)?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| InvalidToken)?;
        claims.read()
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.present).chain(&self.former)
    }
}

impl std::fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.keys().map(|key| key.id.as_str());
        f.debug_struct("TokenKeys").field("ids", &ids.collect::<Vec<_>>()).finish()
    }
}

struct Key {
    id: String,
    /// The one header that its tokens carry, encoded.
    header: String,
    secret: SecretSlice<u8>,
}

impl Key {
    fn new(secret: SecretSlice<u8>) -> Result<Self, SecretTooShort> {
        if secret.expose_secret().len() < TOKEN_SECRET_BYTES {
            return Err(SecretTooShort);
        }
        // The id is derived, so that one secret has one id everywhere and nobody has to name it.
        let tag = keyed(&secret).chain_update("handoff-transfer key id").finalize().into_bytes();
        let id: String = tag[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let header = BASE64.encode(format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}"}}"#));
        Ok(Self { id, header, secret })
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        keyed(&self.secret).chain_update(signed)
    }
}

fn keyed(secret: &SecretSlice<u8>) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret.expose_secret()).expect("HMAC takes a key of any length")
}

/// The claims as they stand in a token.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    aud: String,
    jti: TokenId,
    sub: TransferId,
    op: Operation,
    iat: i64,
    exp: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_budget_usd: Option<NanoUsd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tier: Option<TierName>,
}

impl Claims {
    fn of(claims: &TokenClaims) -> Self {
        Self {
            aud: AUDIENCE.to_owned(),
            jti: claims.id,
            sub: claims.transfer,
            op: claims.operation,
            iat: claims.issued_at.unix_ms().div_euclid(1000),
            exp: claims.expires_at.unix_ms().div_euclid(1000),
            max_budget_usd: claims.max_budget,
            tier: claims.tier.clone(),
        }
    }

    fn read(self) -> Result<TokenClaims, InvalidToken> {
        if self.aud != AUDIENCE {
            return Err(InvalidToken);
        }
        let time = |seconds: i64| seconds.checked_mul(1000).map(Timestamp::from_unix_ms).ok_or(InvalidToken);
        Ok(TokenClaims {
            id: self.jti,
            transfer: self.sub,
            operation: self.op,
            issued_at: time(self.iat)?,
            expires_at: time(self.exp)?,
            max_budget: self.max_budget_usd,
            tier: self.tier,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> SecretSlice<u8> {
        vec![byte; TOKEN_SECRET_BYTES].into()
    }

    fn keys() -> TokenKeys {
        TokenKeys::new(secret(1), []).expect("long enough")
    }

    fn claims() -> TokenClaims {
        TokenClaims {
            id: TokenId::from_u128(5),
            transfer: TransferId::from_u128(6),
            operation: Operation::ProvisionRuntime,
            issued_at: Timestamp::from_unix_ms(1_000_000),
            expires_at: Timestamp::from_unix_ms(1_300_000),
            max_budget: Some(NanoUsd::from_nano(7)),
            tier: Some("sandbox-small".into()),
        }
    }

    /// A token with other claims or another header, signed with the right secret.
    fn signed(header: &str, claims: &str) -> TokenText {
        let signed = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
        let mac = keyed(&secret(1)).chain_update(&signed).finalize().into_bytes();
        TokenText::new(format!("{signed}.{}", BASE64.encode(mac)))
    }

    fn header() -> String {
        String::from_utf8(BASE64.decode(&keys().present.header).expect("ours")).expect("ours")
    }

    fn claims_text() -> String {
        serde_json::to_string(&Claims::of(&claims())).expect("plain data")
    }

    #[test]
    fn a_token_reads_back_and_never_prints() {
        let token = keys().mint(&claims());
        assert_eq!(keys().verify(&token), Ok(claims()));
        assert_eq!(keys().verify(&signed(&header(), &claims_text())), Ok(claims()));
        assert!(!format!("{token:?}").contains("ey"));
        assert!(!format!("{:?}", keys()).contains("\u{1}"));
    }

    /// H-21
    #[test]
    fn another_algorithm_is_refused_even_when_the_signature_is_right() {
        for other in ["none", "None", "HS384", "HS512", "RS256", ""] {
            let token = signed(&header().replace("HS256", other), &claims_text());
            assert_eq!(keys().verify(&token), Err(InvalidToken), "{other}");
        }
        let unsigned =
            format!("{}.{}.", BASE64.encode(r#"{"alg":"none","typ":"JWT"}"#), BASE64.encode(claims_text()));
        assert_eq!(keys().verify(&TokenText::new(unsigned)), Err(InvalidToken));
    }

    #[test]
    fn a_header_that_says_more_or_in_another_order_is_refused() {
        let id = &keys().present.id;
        for other in [
            format!(r#"{{"typ":"JWT","alg":"HS256","kid":"{id}"}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}","crit":["b64"]}}"#),
            format!(r#"{{"alg":"HS256","alg":"none","typ":"JWT","kid":"{id}"}}"#),
            r#"{"alg":"HS256","typ":"JWT","kid":"00000000"}"#.to_owned(),
        ] {
            assert_eq!(keys().verify(&signed(&other, &claims_text())), Err(InvalidToken), "{other}");
        }
    }

    #[test]
    fn any_changed_byte_is_refused() {
        let token = keys().mint(&claims());
        for at in 0..token.expose().len() {
            let mut bytes = token.expose().as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = TokenText::new(String::from_utf8(bytes).expect("ASCII"));
            assert_eq!(keys().verify(&changed), Err(InvalidToken), "byte {at}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused_whatever_it_is() {
        let good = keys().mint(&claims());
        let long = format!("{}{}", "A".repeat(TOKEN_BYTES), good.expose());
        let halves: Vec<&str> = good.expose().split('.').collect();
        for bad in [
            String::new(),
            ".".to_owned(),
            "..".to_owned(),
            "é.é.é".to_owned(),
            halves[..2].join("."),
            format!("{}.", good.expose()),
            format!("{}=", good.expose()),
            format!("{}.{}", good.expose(), halves[2]),
            long,
        ] {
            assert_eq!(keys().verify(&TokenText::new(bad.clone())), Err(InvalidToken), "{bad}");
        }
    }

    #[test]
    fn claims_of_another_shape_are_refused_even_when_signed() {
        let good = claims_text();
        for bad in [
            good.replace("handoff-transfer", "another-service"),
            good.replace(r#""exp":1300"#, r#""exp":"1300""#),
            good.replace(r#""exp":1300"#, r#""exp":1300.5"#),
            good.replace(r#""exp":1300"#, r#""exp":9223372036854775807"#),
            good.replace(r#""exp":1300,"#, ""),
            good.replace(r#""iat""#, r#""nbf""#),
            good.replace("provision_runtime", "terminate"),
            good.replace(r#""iat":1000"#, r#""iat":1000,"exp":9999"#),
            good.replace(r#""0.000000007""#, "7"),
        ] {
            assert_ne!(bad, good);
            assert_eq!(keys().verify(&signed(&header(), &bad)), Err(InvalidToken), "{bad}");
        }
    }

    /// H-21
    #[test]
    fn a_former_key_verifies_while_it_is_kept_and_signs_no_more() {
        let old = TokenKeys::new(secret(1), []).expect("long enough");
        let token = old.mint(&claims());
        let both = TokenKeys::new(secret(2), [secret(1)]).expect("long enough");
        assert_eq!(both.verify(&token), Ok(claims()));
        assert_eq!(old.verify(&both.mint(&claims())), Err(InvalidToken));
        let new = TokenKeys::new(secret(2), []).expect("long enough");
        assert_eq!(new.verify(&token), Err(InvalidToken));
        assert_eq!(new.verify(&both.mint(&claims())), Ok(claims()));
    }

    /// H-21
    #[test]
    fn a_short_secret_is_refused() {
        let short: SecretSlice<u8> = vec![1; TOKEN_SECRET_BYTES - 1].into();
        assert_eq!(TokenKeys::new(short, []).err(), Some(SecretTooShort));
    }
}
