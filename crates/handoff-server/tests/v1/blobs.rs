//! Snapshot bytes over the wire, and staging what was uploaded.

use std::sync::Arc;

use handoff_client::ClientBlobs;
use handoff_protocol::limits::BLOB_BYTES;
use handoff_protocol::port::{BlobError, BlobStore as _};
use handoff_protocol::request::Stage;
use handoff_protocol::{Digest, ErrorCode};
use handoff_snapshot::{SealContext, seal};

use crate::raw::exchange;
use crate::world::{World, minimal, refused};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_comes_back_whole_or_from_where_it_was_cut() {
    let world = World::new().await;
    let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let digest = Digest::of(&bytes);
    let client = &world.client;
    assert_eq!(client.blob_size(digest).await.expect("answers"), None);
    assert_eq!(refused(client.blob(digest, 0).await), ErrorCode::NotFound);
    for _ in 0..2 {
        client.put_blob(digest, bytes.clone().into()).await.expect("stored");
    }
    assert_eq!(client.blob_size(digest).await.expect("answers"), Some(bytes.len() as u64));
    assert_eq!(client.blob(digest, 0).await.expect("there"), bytes);
    assert_eq!(client.blob(digest, 399_990).await.expect("there"), bytes[399_990..]);
    assert_eq!(refused(client.blob(digest, 400_000).await), ErrorCode::InvalidArgument);
    let some = world.raw("GET", &format!("/v1/blobs/{digest}"), "range: bytes=4-7\r\n", b"").await;
    assert_eq!((some.status, some.body.as_bytes()), (206, &bytes[4..8]));
    assert!(some.head.contains("content-range: bytes 4-7/400000"), "{}", some.head);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_bytes_than_the_name_says_and_too_many_are_refused() {
    let world = World::new().await;
    let digest = Digest::of(b"abc");
    let wrong = world.client.put_blob(digest, "abd".into()).await;
    assert_eq!(refused(wrong), ErrorCode::ChecksumMismatch);
    assert_eq!(world.client.blob_size(digest).await.expect("answers"), None);
    let head = format!(
        "PUT /v1/blobs/{digest} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        BLOB_BYTES + 1
    );
    assert_eq!(exchange(&world.socket(), head.as_bytes()).await.code(), ErrorCode::PayloadTooLarge);
    for name in ["sha256:abc", "sha512:00", "..%2f..%2fetc%2fpasswd"] {
        let answer = world.raw("GET", &format!("/v1/blobs/{name}"), "", b"").await;
        assert_eq!(answer.code(), ErrorCode::InvalidArgument, "{name}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wire_is_a_blob_store() {
    let world = World::new().await;
    let blobs = ClientBlobs::new(world.client.clone());
    let digest = Digest::of(b"abc");
    assert!(matches!(blobs.get(digest).await, Err(BlobError::NotFound(found)) if found == digest));
    assert!(matches!(blobs.put(digest, b"abd".to_vec()).await, Err(BlobError::Mismatch(_))));
    blobs.put(digest, b"abc".to_vec()).await.expect("stored");
    assert_eq!(blobs.get(digest).await.expect("there"), b"abc");
    assert_eq!(blobs.size(digest).await.expect("answers"), Some(3));
    assert!(blobs.delete(digest).await.is_err());
    world.stop().await;
}

/// H-104
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uploaded_snapshot_is_staged_once_all_of_it_is_there() {
    let world = World::new().await;
    let input = minimal().input.expect("an input");
    let sealed = seal(&input, &SealContext::default()).expect("sealed");
    let digest = sealed.digest;
    let stage = || Stage { input: None, snapshot: Some(digest), ..minimal() };
    assert_eq!(refused(world.client.stage(stage()).await), ErrorCode::SnapshotInvalid);
    let blobs = Arc::new(ClientBlobs::new(world.client.clone()));
    let (manifest, parts) = sealed.blobs.split_last().expect("a manifest");
    blobs.put(manifest.digest, manifest.bytes.clone()).await.expect("stored");
    for part in parts {
        let error = world.client.stage(stage()).await.expect_err("incomplete").problem();
        assert_eq!(error.code, ErrorCode::SnapshotInvalid);
        blobs.put(part.digest, part.bytes.clone()).await.expect("stored");
    }
    let staged = world.client.stage(stage()).await.expect("complete");
    assert_eq!(staged.snapshot, digest);
    let garbage = Digest::of(b"{}");
    blobs.put(garbage, b"{}".to_vec()).await.expect("stored");
    let stage = Stage { input: None, snapshot: Some(garbage), ..minimal() };
    assert_eq!(refused(world.client.stage(stage).await), ErrorCode::SnapshotInvalid);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_said_to_be_full_and_nothing_is_half_stored() {
    let world = World::on_a_full_disk().await;
    let digest = Digest::of(b"abc");
    assert_eq!(refused(world.client.put_blob(digest, "abc".into()).await), ErrorCode::StorageFull);
    assert_eq!(world.client.blob_size(digest).await.expect("answers"), None);
    assert_eq!(refused(world.client.stage(minimal()).await), ErrorCode::StorageFull);
    assert!(world.client.transfers(&Default::default()).await.expect("a page").transfers.is_empty());
    world.stop().await;
}
