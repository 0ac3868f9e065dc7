//! Plain HTML pages for people who follow a vendor's link in a demo.

use super::http::{HttpRequest, HttpResponse};

pub(crate) struct HtmlPage {
    title: String,
    body: String,
}

impl HtmlPage {
    pub(crate) fn new(title: &str) -> Self {
        let title = escape(title);
        let body = format!("<h1>{title}</h1>");
        Self { title, body }
    }

    pub(crate) fn paragraph(&mut self, text: &str) {
        self.body.push_str(&format!("<p>{}</p>", escape(text)));
    }

    pub(crate) fn preformatted(&mut self, text: &str) {
        self.body.push_str(&format!("<pre>{}</pre>", escape(text)));
    }

    pub(crate) fn section(&mut self, head: &str, text: &str) {
        let (head, text) = (escape(head), escape(text));
        self.body.push_str(&format!(
            "<section><b>{head}</b><pre>{text}</pre></section>"
        ));
    }

    pub(crate) fn link(&mut self, text: &str, url: &str) {
        let (text, url) = (escape(text), escape(url));
        self.body
            .push_str(&format!("<p><a href=\"{url}\">{text}</a></p>"));
    }

    /// Button that posts to an address.
    pub(crate) fn button(&mut self, text: &str, url: &str) {
        let (text, url) = (escape(text), escape(url));
        self.body.push_str(&format!(
            "<form method=post action=\"{url}\"><button>{text}</button></form>"
        ));
    }

    /// Form that posts a comment to the address of the page.
    pub(crate) fn comment_form(&mut self) {
        self.body.push_str(
            "<form method=post><label>Comment as Robin Example<br><textarea name=comment rows=4 required></textarea>\
             </label><p><button>Comment</button></form>",
        );
    }

    pub(crate) fn into_response(self) -> HttpResponse {
        let Self { title, body } = self;
        let style = "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}\
            pre{white-space:pre-wrap;background:#8881;padding:.7rem;border-radius:.4rem}\
            textarea{font:inherit;width:100%;box-sizing:border-box}button{font:inherit;padding:.4rem 1rem}:root{color-scheme:light dark}";
        let html = format!(
            "<!doctype html><html lang=en><meta charset=utf-8>\
             <meta name=viewport content=\"width=device-width\"><title>{title}</title>\
                     <style>{style}</style><p><small>Page of a fake vendor</small></p>{body}"
        );
        HttpResponse::new(200, "text/html; charset=utf-8", html).header(
            "content-security-policy",
            "default-src 'none'; style-src 'unsafe-inline'",
        )
    }
}

/// Handles the [form](HtmlPage::comment_form) of a ticket's page, and shows the page again. `add` is `None` if there is no
/// such ticket.
pub(crate) fn receive_comment(
    request: &HttpRequest,
    add: Option<impl FnOnce(&str)>,
) -> HttpResponse {
    let Some(add) = add else {
        return HttpResponse::text(404, "no such ticket");
    };
    let comment = request.form_param("comment").unwrap_or_default();
    let comment = comment.replace("\r\n", "\n");
    if comment.trim().is_empty() {
        return HttpResponse::text(400, "no comment");
    }
    add(&comment);
    let page = request.path.trim_end_matches('/').rsplit('/').next();
    HttpResponse::empty(303).header("location", page.unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
