//! Pages the host need not send twice: an unchanged one costs nothing of the allowance.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::ids::Repo;
use crate::wire::{Request, VendorError};

use super::GitHub;

/// How many pages are remembered?
const MAX_PAGES: usize = 256;

/// A larger page is not worth its memory.
const MAX_PAGE_BYTES: usize = 128 << 10;

/// What a page is kept as: the fields we read, not the many the host sends.
pub(super) trait Kept: Serialize + DeserializeOwned {}
impl<T: Serialize + DeserializeOwned> Kept for T {}

/// One page of an answer, and where the next one is.
pub(super) struct Page<T> {
    pub value: T,
    pub next: Option<String>,
}

#[derive(Clone)]
struct Remembered {
    etag: String,
    json: Vec<u8>,
    next: Option<String>,
}

/// Pages by address and account; the oldest leaves first.
#[derive(Default)]
pub(super) struct Pages {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pages: HashMap<String, Remembered>,
    by_age: VecDeque<String>,
}

impl Pages {
    fn get(&self, key: &str) -> Option<Remembered> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pages.get(key).cloned()
    }

    fn put(&self, key: String, page: Remembered) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.pages.insert(key.clone(), page).is_none() {
            state.by_age.push_back(key);
        }
        while state.by_age.len() > MAX_PAGES {
            if let Some(oldest) = state.by_age.pop_front() {
                state.pages.remove(&oldest);
            }
        }
    }
}

impl GitHub {
    /// Reads one page, asking the host to send it only when it has changed.
    pub(super) async fn read<T: Kept>(
        &self,
        repo: &Repo,
        action: &'static str,
        url: String,
    ) -> Result<Page<T>, VendorError> {
        let key = format!("{repo} {url}");
        let known = self.inner.pages.get(&key);
        let mut request = Request::get(action, &url);
        if let Some(known) = &known {
            request = request.header("if-none-match", &known.etag);
        }
        let response = self.send(repo, request).await?;
        if let (304, Some(known)) = (response.status(), known) {
            let value = serde_json::from_slice(&known.json)
                .map_err(|error| response.misread(format!("a remembered page: {error}")))?;
            return Ok(Page {
                value,
                next: known.next,
            });
        }
        let page = Page {
            value: response.json::<T>()?,
            next: response.header("link").and_then(next_link),
        };
        if let (Some(etag), Ok(json)) = (response.header("etag"), serde_json::to_vec(&page.value))
            && json.len() <= MAX_PAGE_BYTES
        {
            let remembered = Remembered {
                etag: etag.to_owned(),
                json,
                next: page.next.clone(),
            };
            self.inner.pages.put(key, remembered);
        }
        Ok(page)
    }
}

/// The address with `rel="next"` in a `Link` header.
fn next_link(header: &str) -> Option<String> {
    header.split(',').find_map(|link| {
        let (address, relations) = link.split_once(';')?;
        let address = address.trim().strip_prefix('<')?.strip_suffix('>')?;
        relations
            .split(';')
            .any(|relation| relation.trim() == "rel=\"next\"")
            .then(|| address.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_the_one_the_host_calls_next() {
        assert_eq!(
            next_link("<https://h/x?page=3>; rel=\"next\", <https://h/x?page=9>; rel=\"last\""),
            Some("https://h/x?page=3".to_owned())
        );
        assert_eq!(next_link("<https://h/x?page=1>; rel=\"prev\""), None);
        assert_eq!(next_link("nonsense"), None);
    }

    #[test]
    fn the_oldest_pages_leave() {
        let pages = Pages::default();
        for number in 0..MAX_PAGES + 10 {
            let page = Remembered {
                etag: number.to_string(),
                json: vec![],
                next: None,
            };
            pages.put(number.to_string(), page.clone());
            pages.put(number.to_string(), page);
        }
        assert!(pages.get("9").is_none() && pages.get("10").is_some());
        assert_eq!(pages.state.lock().unwrap().pages.len(), MAX_PAGES);
    }
}
