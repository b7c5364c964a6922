//! Faults over HTTP.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use vsteer_core::{Fault, FaultKind};

/// A fault in the form of `--json`, with the status that fits it.
pub(super) fn refused(fault: &Fault) -> Response {
    let status = match fault.kind {
        FaultKind::Usage | FaultKind::BadInput | FaultKind::Unsupported => StatusCode::BAD_REQUEST,
        FaultKind::NothingThere => StatusCode::NOT_FOUND,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(json!({ "error": fault }))).into_response()
}
