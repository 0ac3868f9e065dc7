//! Pages the host need not send twice: an unchanged one costs nothing of the allowance.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::ids::Repo;
use crate::wire::{Request, VendorError};

use super::GitHub;

/// How many pages are remembered?
const MAX_PAGES: usize = 512;

/// How much memory do they take?
const MAX_BYTES: usize = 2 << 20;

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
    etag: Box<str>,
    json: Box<[u8]>,
    next: Option<String>,
}

/// Pages by address and account, the last to be asked for at the back; the one nobody asked for the
/// longest leaves first.
#[derive(Default)]
pub(super) struct Pages {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pages: VecDeque<(Box<str>, Remembered)>,
    /// Of all pages.
    bytes: usize,
}

impl Remembered {
    fn bytes(&self, key: &str) -> usize {
        key.len() + self.etag.len() + self.json.len() + self.next.as_ref().map_or(0, String::len)
    }
}

impl Pages {
    fn get(&self, key: &str) -> Option<Remembered> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, page) = state.take(key)?;
        state.add(key, page.clone());
        Some(page)
    }

    fn put(&self, key: String, page: Remembered) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.take(&key);
        state.add(key.into(), page);
        while state.pages.len() > MAX_PAGES || state.bytes > MAX_BYTES {
            let Some((key, page)) = state.pages.pop_front() else {
                return;
            };
            state.bytes -= page.bytes(&key);
        }
    }
}

impl State {
    fn take(&mut self, key: &str) -> Option<(Box<str>, Remembered)> {
        let at = self.pages.iter().position(|(known, _)| **known == *key)?;
        let (key, page) = self.pages.remove(at)?;
        self.bytes -= page.bytes(&key);
        Some((key, page))
    }

    fn add(&mut self, key: Box<str>, page: Remembered) {
        self.bytes += page.bytes(&key);
        self.pages.push_back((key, page));
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
                etag: etag.into(),
                json: json.into(),
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

    fn page(bytes: usize) -> Remembered {
        Remembered {
            etag: "e".into(),
            json: vec![b' '; bytes].into(),
            next: None,
        }
    }

    #[test]
    fn the_page_nobody_asked_for_the_longest_leaves_first() {
        let pages = Pages::default();
        for number in 0..MAX_PAGES {
            pages.put(number.to_string(), page(1));
            pages.put(number.to_string(), page(2));
        }
        assert!(pages.get("0").is_some());
        pages.put("one more".to_owned(), page(1));
        assert!(pages.get("0").is_some() && pages.get("1").is_none() && pages.get("2").is_some());
        assert_eq!(pages.state.lock().unwrap().pages.len(), MAX_PAGES);
    }

    #[test]
    fn large_pages_leave_room_for_fewer() {
        let pages = Pages::default();
        for number in 0..100 {
            pages.put(number.to_string(), page(MAX_PAGE_BYTES));
        }
        let state = pages.state.lock().unwrap();
        let held: usize = state.pages.iter().map(|(key, page)| page.bytes(key)).sum();
        assert_eq!(state.bytes, held);
        assert!(held <= MAX_BYTES && held > MAX_BYTES - 2 * MAX_PAGE_BYTES);
    }
}
