//! Snapshot bytes: `HEAD`, `GET` with ranges, `PUT`. A digest names its bytes for ever, so answers may be kept.

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use handoff_protocol::limits::BLOB_BYTES;
use handoff_protocol::port::BlobError;
use handoff_protocol::{Digest, ErrorCode};
use handoff_service::{Role, Service};
use http::{HeaderMap, StatusCode, header};

use super::blob_memory::{self, BlobMemory, Held};
use super::caller::Caller;
use super::document::{self, Id};
use super::problem::Failure;

/// Session content: not for viewers.
const CONTENT: [Role; 5] = [Role::Source, Role::Caller, Role::Orchestrator, Role::Admin, Role::Node];

async fn check(service: &Service, caller: &Caller) -> Result<(), Failure> {
    let principal = &caller.0.principal;
    if CONTENT.iter().any(|role| principal.has(*role)) {
        return Ok(());
    }
    Err(service.denied(principal, "read or store session content").await.into())
}

pub(super) async fn head(
    State(service): State<Service>,
    caller: Caller,
    Id(digest): Id<Digest>,
) -> Result<Response, Failure> {
    check(&service, &caller).await?;
    let size = service.blobs().size(digest).await.map_err(failed)?;
    let size = size.ok_or_else(|| failed(BlobError::NotFound(digest)))?;
    Ok(([(header::CONTENT_LENGTH, size.to_string())], ()).into_response())
}

pub(super) async fn get(
    State(service): State<Service>,
    Extension(memory): Extension<BlobMemory>,
    caller: Caller,
    Id(digest): Id<Digest>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    check(&service, &caller).await?;
    let size = service.blobs().size(digest).await.map_err(failed)?;
    let size = size.ok_or_else(|| failed(BlobError::NotFound(digest)))?;
    let held = memory.for_answer(size).await?;
    let bytes = Bytes::from(service.blobs().get(digest).await.map_err(failed)?);
    let whole = bytes.len();
    let common = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, format!("\"{digest}\"")),
    ];
    let Some(range) = headers.get(header::RANGE) else {
        let length = [(header::CONTENT_LENGTH, whole.to_string())];
        return Ok((common, length, blob_memory::answer(bytes, held)).into_response());
    };
    match range.to_str().ok().and_then(|text| Range::parse(text, whole)) {
        Some(Range { first, end }) => {
            let range = [
                (header::CONTENT_RANGE, format!("bytes {first}-{}/{whole}", end - 1)),
                (header::CONTENT_LENGTH, (end - first).to_string()),
            ];
            let body = blob_memory::answer(bytes.slice(first..end), held);
            Ok((StatusCode::PARTIAL_CONTENT, common, range, body).into_response())
        }
        None => Err(Failure::new(
            ErrorCode::InvalidArgument,
            format!("the blob has {whole} bytes, and the range names none of them"),
            "name one range within the blob, such as bytes=1000-",
        )),
    }
}

pub(super) async fn put(
    State(service): State<Service>,
    Extension(memory): Extension<BlobMemory>,
    caller: Caller,
    Id(digest): Id<Digest>,
    request: Request,
) -> Result<StatusCode, Failure> {
    check(&service, &caller).await?;
    let most = usize::try_from(BLOB_BYTES).unwrap_or(usize::MAX);
    let mut held = Held::default();
    let bytes = document::arriving(request, most, Some((&memory, &mut held))).await?;
    service.blobs().put(digest, bytes).await.map_err(failed)?;
    drop(held);
    Ok(StatusCode::CREATED)
}

fn failed(error: BlobError) -> Failure {
    handoff_service::ServiceError::from(error).into()
}

/// One range of bytes (RFC 9110, section 14.1.2): `bytes=a-b`, `bytes=a-` or `bytes=-n`.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: usize,
    /// The byte after the last one.
    end: usize,
}

impl Range {
    /// The part of it that exists; none where nothing of it does, or it is not one range of bytes.
    fn parse(text: &str, whole: usize) -> Option<Self> {
        let (first, last) = text.strip_prefix("bytes=")?.trim().split_once('-')?;
        let (first, end) = match (first, last) {
            ("", suffix) => (whole.saturating_sub(suffix.parse().ok()?), whole),
            (first, "") => (first.parse().ok()?, whole),
            (first, last) => (first.parse().ok()?, last.parse::<usize>().ok()?.saturating_add(1).min(whole)),
        };
        (first < end).then_some(Self { first, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_to_what_exists() {
        for (text, expected) in [
            ("bytes=0-3", Some((0, 4))),
            ("bytes=4-", Some((4, 10))),
            ("bytes=-3", Some((7, 10))),
            ("bytes=-30", Some((0, 10))),
            ("bytes=9-9", Some((9, 10))),
            ("bytes=5-900", Some((5, 10))),
            ("bytes=10-", None),
            ("bytes=6-5", None),
            ("bytes=-0", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("bytes=18446744073709551616-", None),
            ("lines=0-1", None),
        ] {
            let range = Range::parse(text, 10).map(|range| (range.first, range.end));
            assert_eq!(range, expected, "{text}");
        }
    }
}
