//! Reading what a caller sends: sizes and nesting are checked before anything is parsed, unknown fields and
//! keys that stand twice are refused, and every refusal says where.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use handoff_protocol::ErrorCode;
use handoff_protocol::json::{self, InvalidJson};
use handoff_protocol::limits::BODY_BYTES;
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::problem::Failure;

/// How long a body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(60);
/// Levels above the texts of a minimal input in a request: the body, the input, the conversation.
const AROUND_INPUT: usize = 3;

/// A JSON body.
pub(crate) struct Document<T>(pub(crate) T);

/// A JSON body that may carry a snapshot's minimal input, whose texts have the whole depth to themselves.
pub(crate) struct WithInput<T>(pub(crate) T);

/// A query.
pub(crate) struct Asked<T>(pub(crate) T);

/// An id in the path.
pub(crate) struct Id<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Document<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let bytes = json_body(request).await?;
        json::check(&bytes).map_err(|error| invalid(&error.to_string()))?;
        parse(&bytes).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for WithInput<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let bytes = json_body(request).await?;
        // What is deeper than any input may be is refused as the input would be: one limit, one code.
        json::check_around(&bytes, AROUND_INPUT).map_err(|error| match error {
            InvalidJson::TooDeep { .. } => {
                Failure::new(ErrorCode::SnapshotInvalid, error.to_string(), "nest the input less deeply")
            }
            InvalidJson::DuplicateKey { .. } | InvalidJson::Syntax { .. } => invalid(&error.to_string()),
        })?;
        parse(&bytes).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query
            .map(|Query(query)| Self(query))
            .map_err(|error| invalid(&format!("the query: {}", error.body_text())))
    }
}

impl<S: Send + Sync, T> FromRequestParts<S> for Id<T>
where
    T: std::str::FromStr<Err: std::fmt::Display> + Send,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = path.map_err(|error| invalid(&format!("the path: {}", error.body_text())))?;
        text.parse().map(Self).map_err(|error| invalid(&format!("the path: {error}")))
    }
}

/// A body of at most so many bytes, whatever it is.
pub(crate) async fn body(request: Request, most: usize) -> Result<Bytes, Failure> {
    let too_large = || {
        let message = format!("the body is larger than {most} bytes");
        Failure::new(ErrorCode::PayloadTooLarge, message, "send less, or upload blobs and name their digest")
    };
    let (parts, body) = request.into_parts();
    if declared(&parts.headers).is_some_and(|bytes| bytes > most as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(ARRIVAL, read(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(invalid(&format!("the body broke off: {error}"))),
        Err(_) => Err(invalid("the body did not arrive within a minute")),
    }
}

async fn read(body: Body, most: usize) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Limited::new(body, most).collect().await?.to_bytes())
}

fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The bytes of a JSON body. No body at all is the empty object: several commands need nothing.
async fn json_body(request: Request) -> Result<Bytes, Failure> {
    let media_type = request.headers().get(header::CONTENT_TYPE).cloned();
    let bytes = body(request, BODY_BYTES).await?;
    if bytes.is_empty() {
        return Ok(Bytes::from_static(b"{}"));
    }
    let is_json = media_type.as_ref().is_none_or(|found| {
        let found = found.to_str().unwrap_or_default();
        found.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
    });
    if is_json { Ok(bytes) } else { Err(invalid("the body is not application/json")) }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    // The parser would also take an array, with the fields by their place.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(invalid("the body is not a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        // The amount type marks its own refusals, because a parser's error has no code.
        match text.split_once("invalid_amount: ") {
            Some((before, after)) => {
                let message = shortened(&format!("{before}{after}"));
                Failure::new(
                    ErrorCode::InvalidAmount,
                    message,
                    "write an amount as a string, such as \"4.50\"",
                )
            }
            None => invalid(&text),
        }
    })
}

fn invalid(message: &str) -> Failure {
    let hint = "correct the request; docs/protocol.md lists the fields of every command";
    Failure::new(ErrorCode::InvalidArgument, shortened(message), hint)
}

/// An error may repeat what was sent; it repeats no more than tells which part is meant.
fn shortened(message: &str) -> String {
    const CHARACTERS: usize = 240;
    if message.chars().count() <= CHARACTERS {
        return message.to_owned();
    }
    let start: String = message.chars().take(CHARACTERS).collect();
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    use handoff_protocol::request::{Provision, Raise, Stage};

    use super::*;

    async fn sent<T: DeserializeOwned>(text: impl Into<Body>) -> Result<T, ErrorCode> {
        let request = Request::builder().body(text.into()).expect("a request");
        let read = Document::<T>::from_request(request, &()).await;
        read.map(|Document(body)| body).map_err(|failure| failure.problem().code)
    }

    fn nested(levels: usize) -> String {
        let state = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"input":{{"source_host":"h","message_history":[],"tool_state":{state}}}}}"#)
    }

    #[tokio::test]
    async fn amounts_are_strings_with_at_most_nine_decimals() {
        for bad in ["1", "1.5", "\"1e3\"", "\"-1\"", "\"0.0000000001\"", "\"NaN\"", "\"99999999999\"", "null"]
        {
            let body = format!(r#"{{"budget_usd":{bad}}}"#);
            assert_eq!(sent::<Raise>(body).await.err(), Some(ErrorCode::InvalidAmount), "{bad}");
        }
        assert_eq!(
            sent::<Raise>(r#"{"budget_usd":"1.50"}"#).await.map(|raise| raise.budget_usd.nano()),
            Ok(1_500_000_000)
        );
    }

    #[tokio::test]
    async fn unknown_missing_and_double_fields_are_refused() {
        for bad in [
            r#"{"tier":"t","budget_usd":"1","sudo":true}"#,
            r#"{"budget_usd":"1"}"#,
            r#"{"tier":"t","budget_usd":"1","tier":"u"}"#,
            r#"{"tier":"t","budget_usd":"1","t\u0069er":"u"}"#,
            r#"{"tier":"t","budget_usd":"1""#,
            r#"["tier"]"#,
            "\u{feff}{}",
        ] {
            assert_eq!(sent::<Provision>(bad).await.err(), Some(ErrorCode::InvalidArgument), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_whether_it_says_so_or_not() {
        let large = vec![b' '; BODY_BYTES + 1];
        assert_eq!(sent::<Raise>(large.clone()).await.err(), Some(ErrorCode::PayloadTooLarge));
        let request = Request::builder()
            .header("content-length", (BODY_BYTES + 1).to_string())
            .body(Body::empty())
            .expect("a request");
        let refused = Document::<Raise>::from_request(request, &()).await.err().expect("refused");
        assert_eq!(refused.problem().code, ErrorCode::PayloadTooLarge);
    }

    #[tokio::test]
    async fn case_s15_an_input_has_the_whole_depth_to_itself() {
        let read = async |levels| {
            let request = Request::builder().body(Body::from(nested(levels))).expect("a request");
            let read = WithInput::<Stage>::from_request(request, &()).await;
            read.map(|_| ()).map_err(|failure| failure.problem().code)
        };
        for levels in [1, 127, 128] {
            assert_eq!(read(levels).await, Ok(()), "{levels}");
        }
        for levels in [5_000, 100_000] {
            assert_eq!(read(levels).await, Err(ErrorCode::SnapshotInvalid), "{levels}");
        }
    }

    /// H-15
    #[tokio::test]
    async fn an_error_repeats_no_more_than_it_must() {
        let body = format!(r#"{{"budget_usd":"1","{}":1}}"#, "x".repeat(5000));
        let request = Request::builder().body(Body::from(body)).expect("a request");
        let refused = Document::<Raise>::from_request(request, &()).await.err().expect("refused");
        assert!(refused.problem().message.len() < 300);
    }
}
