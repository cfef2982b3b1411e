//! Answers that are documents.

use axum::Json;
use axum::response::{IntoResponse, Response};
use handoff_protocol::Status;
use handoff_protocol::request::TransferView;
use handoff_service::{Service, ServiceError};
use http::{HeaderValue, StatusCode, header};

use super::problem::Failure;

/// A document, or the problem in its place.
pub(crate) type Answer<T> = Result<Json<T>, Failure>;

/// Runs a use-case to its end even if the caller disconnects, and answers with its document.
pub(crate) async fn of<T: Send + 'static, F>(service: Service, work: impl FnOnce(Service) -> F) -> Answer<T>
where
    F: Future<Output = Result<T, ServiceError>> + Send + 'static,
{
    let work = work(service.clone());
    Ok(Json(service.detached(work).await?))
}

/// A transfer's view, with its version as the ETag.
pub(crate) struct Viewed(pub(crate) TransferView);

/// The same as [`of`], for a transfer's view.
pub(crate) async fn view<F>(service: Service, work: impl FnOnce(Service) -> F) -> Result<Viewed, Failure>
where
    F: Future<Output = Result<TransferView, ServiceError>> + Send + 'static,
{
    let work = work(service.clone());
    Ok(Viewed(service.detached(work).await?))
}

impl IntoResponse for Viewed {
    fn into_response(self) -> Response {
        let tag = HeaderValue::from_str(&format!("\"{}\"", self.0.version)).expect("digits and quotes");
        let mut response = Json(self.0).into_response();
        response.headers_mut().insert(header::ETAG, tag);
        response
    }
}

/// The answer to a push: 202 while the destination has not sent its receipt.
pub(crate) struct Pushed(pub(crate) Viewed);

impl IntoResponse for Pushed {
    fn into_response(self) -> Response {
        let going_on = self.0.0.status == Status::Provisioned;
        let mut response = self.0.into_response();
        if going_on {
            *response.status_mut() = StatusCode::ACCEPTED;
        }
        response
    }
}
