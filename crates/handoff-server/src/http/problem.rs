//! The one mapping from failures to HTTP answers.
//!
//! The body is a problem document (RFC 9457) with `type`, `title` and `detail`, and with the members of
//! `handoff_protocol::Problem`. One of those is `status`, the transfer's; the member of that name in the RFC is
//! advisory, repeats the status line and is left out, and a reader that expects a number ignores the word.

use std::error::Error as _;

use axum::response::{IntoResponse, Response};
use handoff_protocol::{ErrorCode, Problem, header};
use handoff_service::ServiceError;
use http::{HeaderValue, StatusCode, header as names};
use serde::Serialize;

/// A refusal or failure on its way out.
#[derive(Debug)]
pub(crate) struct Failure(Problem);

#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    title: &'static str,
    detail: &'a str,
    #[serde(flatten)]
    problem: &'a Problem,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>, hint: &str) -> Self {
        Self(Problem::new(code, message, hint))
    }

    #[cfg(test)]
    pub(crate) fn problem(&self) -> &Problem {
        &self.0
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        match error.code() {
            ErrorCode::Internal | ErrorCode::StoreUnavailable if !matches!(error, ServiceError::Stopping) => {
                tracing::error!(%error, cause = error.source(), "a call failed");
            }
            code => tracing::debug!(%code, %error, "a call was refused"),
        }
        Self(error.problem())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let code = self.0.code;
        let body = Body {
            r#type: format!("urn:handoff:problem:{code}"),
            title: code.sentence(),
            detail: &self.0.message,
            problem: &self.0,
        };
        let body = serde_json::to_vec(&body).expect("plain data always prints");
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(names::CONTENT_TYPE, HeaderValue::from_static(header::PROBLEM_MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            // RFC 9110, section 11.6.1: a 401 names a way to authenticate.
            headers.insert(names::WWW_AUTHENTICATE, HeaderValue::from_static("Handoff"));
        }
        if self.0.retryable {
            headers.insert(names::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use handoff_protocol::{Status, TransferId};

    use super::*;

    async fn read(response: Response) -> serde_json::Value {
        let body = to_bytes(response.into_body(), 1 << 16).await.expect("small");
        serde_json::from_slice(&body).expect("a document")
    }

    #[tokio::test]
    async fn every_code_is_answered_with_its_own_status_and_reads_back() {
        for code in ErrorCode::ALL {
            let response = Failure::new(*code, "what happened", "what to do").into_response();
            assert_eq!(response.status().as_u16(), code.http_status(), "{code}");
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            assert_eq!(response.headers().contains_key("retry-after"), code.retryable(), "{code}");
            let unauthorized = response.status() == StatusCode::UNAUTHORIZED;
            assert_eq!(response.headers().contains_key("www-authenticate"), unauthorized, "{code}");
            let body = read(response).await;
            assert_eq!(body["type"], format!("urn:handoff:problem:{code}"));
            assert_eq!(body["title"], code.sentence());
            assert_eq!(body["detail"], "what happened");
            let problem: Problem = serde_json::from_value(body).expect("a problem");
            assert_eq!(problem, Problem::new(*code, "what happened", "what to do"));
        }
    }

    #[tokio::test]
    async fn the_status_in_the_body_is_the_transfers() {
        let mut problem =
            Problem::new(ErrorCode::WrongStatus, "m", "h").of_transfer(TransferId::from_u128(1));
        (problem.status, problem.expected) = (Some(Status::Staged), vec![Status::Pushed]);
        let body = read(Failure::from(problem).into_response()).await;
        assert_eq!((&body["status"], &body["expected"][0]), (&"staged".into(), &"pushed".into()));
    }

    #[test]
    fn what_fails_inside_shows_nothing_of_it() {
        let failure = Failure::from(ServiceError::Internal("secret detail".to_owned()));
        assert_eq!(failure.problem().code, ErrorCode::Internal);
        assert!(!failure.problem().message.contains("secret"));
    }
}
