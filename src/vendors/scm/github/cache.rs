//! Pages the host need not send twice: an unchanged one costs nothing of the allowance.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::{Request, VendorError};
use domain::ids::Repo;

use super::GitHub;

/// How many pages are remembered?
const MAX_PAGES: usize = 512;

/// How much memory do they take?
const MAX_BYTES: usize = 2 << 20;

/// A larger page is not worth its memory.
const MAX_PAGE_BYTES: usize = 128 << 10;

/// What a page is kept as: the fields we read, not the many the host sends.
pub(super) trait Cacheable: Serialize + DeserializeOwned {}
impl<T: Serialize + DeserializeOwned> Cacheable for T {}

/// One page of an answer, and where the next one is.
pub(super) struct Page<T> {
    pub value: T,
    pub next: Option<String>,
}

#[derive(Clone)]
struct Remembered {
    url: Box<str>,
    etag: Box<str>,
    json: Box<[u8]>,
    next: Option<String>,
}

/// Pages by repository and question, the last to be asked for at the back; the one nobody asked for the
/// longest leaves first.
#[derive(Default)]
pub(super) struct PageCache {
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
        let next = self.next.as_ref().map_or(0, String::len);
        key.len() + self.url.len() + self.etag.len() + self.json.len() + next
    }
}

impl PageCache {
    /// The page of an address. One that answered the same question at another time is forgotten.
    fn get(&self, key: &str, url: &str) -> Option<Remembered> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, page) = state.take(key).filter(|(_, page)| *page.url == *url)?;
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
    pub(super) async fn read<T: Cacheable>(
        &self,
        repo: &Repo,
        action: &'static str,
        url: String,
    ) -> Result<Page<T>, VendorError> {
        let key = format!("{repo} {}", question(&url));
        let known = self.inner.page_cache.get(&key, &url);
        let mut request = Request::get(action, &url);
        if let Some(known) = &known {
            request = request.header("if-none-match", &known.etag);
        }
        let response = self.send(repo, request).await?;
        if let (304, Some(known)) = (response.status(), known) {
            let value = serde_json::from_slice(&known.json)
                .map_err(|error| response.decode_error(format!("a remembered page: {error}")))?;
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
                url: url.into(),
                etag: etag.into(),
                json: json.into(),
                next: page.next.clone(),
            };
            self.inner.page_cache.put(key, remembered);
        }
        Ok(page)
    }
}

/// An address without the moment since when it asks. That only moves on, so what was answered for an
/// earlier one is never asked for again.
fn question(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let lasting = query
        .split('&')
        .filter(|part| !part.starts_with("created="));
    format!("{path}?{}", lasting.collect::<Vec<_>>().join("&"))
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
    fn a_list_that_is_asked_for_from_later_on_takes_its_own_place() {
        let pages = PageCache::default();
        let from = |minute: u8| format!("https://h/runs?event=e&created=%3E%3D{minute}&page=2");
        assert_eq!(question(&from(1)), "https://h/runs?event=e&page=2");
        for minute in 0..3 {
            let (url, key) = (from(minute), question(&from(minute)));
            assert!(pages.get(&key, &url).is_none());
            pages.put(key.clone(), page(&url, 1));
            assert!(pages.get(&key, &url).is_some());
        }
        assert_eq!(pages.state.lock().unwrap().pages.len(), 1);
    }

    fn page(url: &str, bytes: usize) -> Remembered {
        Remembered {
            url: url.into(),
            etag: "e".into(),
            json: vec![b' '; bytes].into(),
            next: None,
        }
    }

    #[test]
    fn the_page_nobody_asked_for_the_longest_leaves_first() {
        let pages = PageCache::default();
        let knows = |url: &str| pages.get(url, url).is_some();
        let put = |url: &str, bytes| pages.put(url.to_owned(), page(url, bytes));
        for number in 0..MAX_PAGES {
            put(&number.to_string(), 1);
            put(&number.to_string(), 2);
        }
        assert!(knows("0"));
        put("one more", 1);
        assert!(knows("0") && !knows("1") && knows("2"));
        assert_eq!(pages.state.lock().unwrap().pages.len(), MAX_PAGES);
    }

    #[test]
    fn large_pages_leave_room_for_fewer() {
        let pages = PageCache::default();
        for number in 0..100 {
            let url = number.to_string();
            pages.put(url.clone(), page(&url, MAX_PAGE_BYTES));
        }
        let state = pages.state.lock().unwrap();
        let held: usize = state.pages.iter().map(|(key, page)| page.bytes(key)).sum();
        assert_eq!(state.bytes, held);
        assert!(held <= MAX_BYTES && held > MAX_BYTES - 2 * MAX_PAGE_BYTES);
    }
}
