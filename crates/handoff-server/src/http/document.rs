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

use super::blob_memory::{BlobMemory, Held};
use super::misfit::{self, Misfit};
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
        json::check(&bytes).map_err(|error| invalid(&unfit(&error)))?;
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
                Failure::new(ErrorCode::SnapshotInvalid, unfit(&error), "nest the input less deeply")
            }
            InvalidJson::DuplicateKey { .. } | InvalidJson::Syntax { .. } => invalid(&unfit(&error)),
        })?;
        parse(&bytes).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(query)| Self(query)).map_err(|_| {
            let fields = misfit::known_fields::<T>();
            invalid(&format!(
                "a word of the query is unknown, twice there or not possible; it takes: {fields}"
            ))
        })
    }
}

impl<S: Send + Sync, T> FromRequestParts<S> for Id<T>
where
    T: std::str::FromStr + Send,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = path.map_err(|_| invalid("the path is not plain text"))?;
        let malformed = |_| {
            invalid(
                "the path names no id of the kind that belongs there: a prefix, _ and 26 characters of 0-9 a-z without \
                 i, l, o, u; or, of a blob, 'sha256:' and 64 digits of 0-9 a-f",
            )
        };
        text.parse().map(Self).map_err(malformed)
    }
}

/// A body of at most so many bytes, whatever it is.
pub(crate) async fn body(request: Request, most: usize) -> Result<Bytes, Failure> {
    arriving(request, most, None).await.map(Bytes::from)
}

/// The same, and what arrives is accounted for as it does.
pub(super) async fn arriving(
    request: Request,
    most: usize,
    account: Option<(&BlobMemory, &mut Held)>,
) -> Result<Vec<u8>, Failure> {
    let too_large = || {
        let message = format!("the body is larger than {most} bytes");
        Failure::new(ErrorCode::PayloadTooLarge, message, "send less, or upload blobs and name their digest")
    };
    let (parts, body) = request.into_parts();
    let declared = declared(&parts.headers).unwrap_or(0);
    if declared > most as u64 {
        return Err(too_large());
    }
    // Room that was only announced costs nothing before something is written to it.
    let bytes = Vec::with_capacity(usize::try_from(declared).unwrap_or(0));
    match tokio::time::timeout(ARRIVAL, read(Limited::new(body, most), bytes, account)).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(error))) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Ok(Err(_))) => Err(invalid("the body broke off")),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(invalid("the body did not arrive within a minute")),
    }
}

type Broken = Box<dyn std::error::Error + Send + Sync>;

async fn read(
    mut body: Limited<Body>,
    mut bytes: Vec<u8>,
    mut account: Option<(&BlobMemory, &mut Held)>,
) -> Result<Result<Vec<u8>, Broken>, Failure> {
    while let Some(frame) = body.frame().await {
        let data = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) => return Ok(Err(error)),
        };
        if let Some((memory, held)) = &mut account {
            memory.more(held, data.len()).await?;
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Ok(bytes))
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
        let Misfit { message, is_amount } = misfit::of::<T>(bytes, &error);
        if is_amount {
            let hint = "write an amount as a string, such as \"4.50\"";
            Failure::new(ErrorCode::InvalidAmount, message, hint)
        } else {
            invalid(&message)
        }
    })
}

/// What a scan found. A key that stands twice is not named: it may be a session's content.
fn unfit(error: &InvalidJson) -> String {
    match error {
        InvalidJson::DuplicateKey { at, .. } => {
            format!("a key stands twice in one object, again at byte {at}")
        }
        InvalidJson::TooDeep { .. } | InvalidJson::Syntax { .. } => error.to_string(),
    }
}

fn invalid(message: &str) -> Failure {
    let hint = "correct the request; docs/protocol.md lists the fields of every command";
    Failure::new(ErrorCode::InvalidArgument, message, hint)
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
    async fn an_error_repeats_nothing_that_was_sent() {
        let long = "canary".repeat(1000);
        for body in [
            format!(r#"{{"budget_usd":"1","{long}":1}}"#),
            format!(r#"{{"budget_usd":"{long}"}}"#),
            format!(r#"{{"budget_usd":"1","{long}":1,"{long}":1}}"#),
            format!(r#"{{"budget_usd":"1"}} {long}"#),
        ] {
            let request = Request::builder().body(Body::from(body)).expect("a request");
            let refused = Document::<Raise>::from_request(request, &()).await.err().expect("refused");
            let message = &refused.problem().message;
            assert!(!message.contains("canary") && message.len() < 300, "{message}");
        }
    }
}
