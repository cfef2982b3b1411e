//! Whether it is alive, and whether it can work. Anybody may ask.

use axum::Json;
use axum::extract::State;
use handoff_protocol::listing::Health;
use handoff_service::Service;

use super::answer::Answer;

pub(super) async fn alive(State(service): State<Service>) -> Json<Health> {
    Json(health(&service))
}

pub(super) async fn ready(State(service): State<Service>) -> Answer<Health> {
    service.ready().await?;
    Ok(Json(health(&service)))
}

fn health(service: &Service) -> Health {
    let config = service.config();
    Health { control_plane: config.control_plane.clone(), version: config.version.clone() }
}
