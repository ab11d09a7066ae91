//! Lists, page by page.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use sbp_grpc::Status;
use sbp_pravega::controller::{Continuation, Scopes, ScopesRequest, StreamInfo, Streams, StreamsRequest};

use super::{Controller, Store, read, unavailable, written};
use crate::pravega::catalog::{Kind, Segments, is_whole};

/// What a page holds.
const PAGE: usize = 500;
/// The status of a list of what is in a scope that there is not.
const NO_SCOPE: i32 = 1;

impl<S: Store> Controller<S> {
    /// Answers a call for a list; `None`: it is another call.
    pub(super) async fn listed(&self, method: &str, request: Bytes) -> Result<Option<Bytes>, Status> {
        Ok(match method {
            "listScopes" => Some(written(&self.scopes(read(request)?).await?)),
            "listStreamsInScope" => Some(written(&self.streams(read(request)?).await?)),
            _ => None,
        })
    }

    async fn scopes(&self, request: ScopesRequest) -> Result<Scopes, Status> {
        let all = self.catalog.scopes().await.map_err(unavailable)?;
        let (scopes, continuation) = page(&all.0, request.continuation, |_| true);
        Ok(Scopes { scopes, continuation })
    }

    async fn streams(&self, request: StreamsRequest) -> Result<Streams, Status> {
        let scope = request.scope.unwrap_or_default().scope;
        let all = self.catalog.scopes_with_scope(&scope).await.map_err(unavailable)?;
        let Some(found) = all.0.get(&scope) else {
            return Ok(Streams {
                status: NO_SCOPE,
                ..Streams::default()
            });
        };
        let is_shown = |segments: &Segments| {
            let is_stream = segments.values().next().is_some_and(|held| held.kind == Kind::Bytes);
            is_stream && is_whole(segments)
        };
        let (names, continuation) = page(&found.streams, request.continuation, is_shown);
        let info = |stream| StreamInfo {
            scope: scope.clone(),
            stream,
        };
        Ok(Streams {
            streams: names.into_iter().map(info).collect(),
            continuation,
            status: 0,
        })
    }
}

/// Names behind the last one of the page before, and what the next page is asked for with. A page without names is the last one.
fn page<T>(
    all: &BTreeMap<String, T>,
    from: Option<Continuation>,
    is_shown: impl Fn(&T) -> bool,
) -> (Vec<String>, Option<Continuation>) {
    let Continuation { token } = from.unwrap_or_default();
    let behind = (Bound::Excluded(token.as_str()), Bound::Unbounded);
    let shown = all.range::<str, _>(behind).filter(|(_, each)| is_shown(each));
    let names: Vec<_> = shown.map(|(name, _)| name.clone()).take(PAGE).collect();
    let token = names.last().cloned().unwrap_or(token);
    (names, Some(Continuation { token }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_on_one_page() {
        let all: BTreeMap<_, _> = (0..1_203).map(|number| (format!("{number:04}"), number)).collect();
        let mut seen = Vec::new();
        let mut from = None;
        loop {
            let (names, next) = page(&all, from, |number| number % 2 == 0);
            if names.is_empty() {
                break;
            }
            assert!(names.len() <= PAGE);
            seen.extend(names);
            from = next;
        }
        let even: Vec<_> = all
            .iter()
            .filter(|(_, number)| *number % 2 == 0)
            .map(|(name, _)| name.clone())
            .collect();
        assert_eq!(seen, even);
        let (names, next) = page(
            &all,
            Some(Continuation {
                token: String::from("9"),
            }),
            |_| true,
        );
        assert_eq!((names.len(), next.map(|next| next.token)), (0, Some(String::from("9"))));
    }
}
