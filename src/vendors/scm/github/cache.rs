//! Cache of pages for conditional requests. An unchanged page (304) does not count against the rate limit.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::{Request, VendorError};
use domain::ids::Repo;

use super::GitHub;

/// Maximum number of cached pages.
const MAX_PAGES: usize = 512;

/// Maximum size of all cached pages, in bytes.
const MAX_BYTES: usize = 2 << 20;

/// Maximum size of a cached page, in bytes. Larger pages are not cached.
const MAX_PAGE_BYTES: usize = 128 << 10;

/// Page type that can be cached. Only the fields of the type are stored, not the whole response.
pub(super) trait Cacheable: Serialize + DeserializeOwned {}
impl<T: Serialize + DeserializeOwned> Cacheable for T {}

/// Page of a list, with the address of the next page.
pub(super) struct Page<T> {
    pub value: T,
    pub next: Option<String>,
}

#[derive(Clone)]
struct CachedPage {
    url: Box<str>,
    etag: Box<str>,
    json: Box<[u8]>,
    next: Option<String>,
}

/// Least-recently-used cache of pages by repository and cache key. The last used page is at the back.
#[derive(Default)]
pub(super) struct PageCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pages: VecDeque<(Box<str>, CachedPage)>,
    /// Size of all pages, in bytes.
    bytes: usize,
}

impl CachedPage {
    fn bytes(&self, key: &str) -> usize {
        let next = self.next.as_ref().map_or(0, String::len);
        key.len() + self.url.len() + self.etag.len() + self.json.len() + next
    }
}

impl PageCache {
    /// Returns the page of an address. Removes a page with the same key and another address.
    fn get(&self, key: &str, url: &str) -> Option<CachedPage> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, page) = state.take(key).filter(|(_, page)| *page.url == *url)?;
        state.add(key, page.clone());
        Some(page)
    }

    fn put(&self, key: String, page: CachedPage) {
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
    fn take(&mut self, key: &str) -> Option<(Box<str>, CachedPage)> {
        let at = self.pages.iter().position(|(cached, _)| **cached == *key)?;
        let (key, page) = self.pages.remove(at)?;
        self.bytes -= page.bytes(&key);
        Some((key, page))
    }

    fn add(&mut self, key: Box<str>, page: CachedPage) {
        self.bytes += page.bytes(&key);
        self.pages.push_back((key, page));
    }
}

impl GitHub {
    /// Reads one page with a conditional request if the page is cached.
    pub(super) async fn read<T: Cacheable>(
        &self,
        repo: &Repo,
        action: &'static str,
        url: String,
    ) -> Result<Page<T>, VendorError> {
        let key = format!("{repo} {}", cache_key(&url));
        let cached = self.inner.page_cache.get(&key, &url);
        let mut request = Request::get(action, &url);
        if let Some(cached) = &cached {
            request = request.header("if-none-match", &cached.etag);
        }
        let response = self.send(repo, request).await?;
        if let (304, Some(cached)) = (response.status(), cached) {
            let value = serde_json::from_slice(&cached.json)
                .map_err(|error| response.decode_error(format!("a cached page: {error}")))?;
            return Ok(Page {
                value,
                next: cached.next,
            });
        }
        let page = Page {
            value: response.json::<T>()?,
            next: response.header("link").and_then(next_link),
        };
        if let (Some(etag), Ok(json)) = (response.header("etag"), serde_json::to_vec(&page.value))
            && json.len() <= MAX_PAGE_BYTES
        {
            let cached = CachedPage {
                url: url.into(),
                etag: etag.into(),
                json: json.into(),
                next: page.next.clone(),
            };
            self.inner.page_cache.put(key, cached);
        }
        Ok(page)
    }
}

/// Returns an address without its `created` parameter. Its start time only increases, so a page of an
/// earlier start time is never requested again.
fn cache_key(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let stable = query
        .split('&')
        .filter(|part| !part.starts_with("created="));
    format!("{path}?{}", stable.collect::<Vec<_>>().join("&"))
}

/// Returns the address with `rel="next"` in a `Link` header.
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
    fn reads_the_next_page_from_the_link_header() {
        assert_eq!(
            next_link("<https://h/x?page=3>; rel=\"next\", <https://h/x?page=9>; rel=\"last\""),
            Some("https://h/x?page=3".to_owned())
        );
        assert_eq!(next_link("<https://h/x?page=1>; rel=\"prev\""), None);
        assert_eq!(next_link("nonsense"), None);
    }

    #[test]
    fn replaces_the_page_of_an_earlier_start_time() {
        let pages = PageCache::default();
        let from = |minute: u8| format!("https://h/runs?event=e&created=%3E%3D{minute}&page=2");
        assert_eq!(cache_key(&from(1)), "https://h/runs?event=e&page=2");
        for minute in 0..3 {
            let (url, key) = (from(minute), cache_key(&from(minute)));
            assert!(pages.get(&key, &url).is_none());
            pages.put(key.clone(), page(&url, 1));
            assert!(pages.get(&key, &url).is_some());
        }
        assert_eq!(pages.state.lock().unwrap().pages.len(), 1);
    }

    fn page(url: &str, bytes: usize) -> CachedPage {
        CachedPage {
            url: url.into(),
            etag: "e".into(),
            json: vec![b' '; bytes].into(),
            next: None,
        }
    }

    #[test]
    fn evicts_the_least_recently_used_page() {
        let pages = PageCache::default();
        let is_cached = |url: &str| pages.get(url, url).is_some();
        let put = |url: &str, bytes| pages.put(url.to_owned(), page(url, bytes));
        for number in 0..MAX_PAGES {
            put(&number.to_string(), 1);
            put(&number.to_string(), 2);
        }
        assert!(is_cached("0"));
        put("one more", 1);
        assert!(is_cached("0") && !is_cached("1") && is_cached("2"));
        assert_eq!(pages.state.lock().unwrap().pages.len(), MAX_PAGES);
    }

    #[test]
    fn stays_within_the_maximum_size() {
        let pages = PageCache::default();
        for number in 0..100 {
            let url = number.to_string();
            pages.put(url.clone(), page(&url, MAX_PAGE_BYTES));
        }
        let state = pages.state.lock().unwrap();
        let total: usize = state.pages.iter().map(|(key, page)| page.bytes(key)).sum();
        assert_eq!(state.bytes, total);
        assert!(total <= MAX_BYTES && total > MAX_BYTES - 2 * MAX_PAGE_BYTES);
    }
}
