// Drafts of forms, kept for this tab. They survive a reload, Back and a new sign-in. The value of a secret is never
// part of a draft.

const PREFIX = "draft.";

/** @param {string} id @returns {any} */
export function loadDraft(id) {
	try {
		return JSON.parse(sessionStorage.getItem(PREFIX + id) ?? "null");
	} catch {
		return null;
	}
}

/** @param {string} id @param {any} draft Null deletes the draft. */
export function saveDraft(id, draft) {
	if (draft) sessionStorage.setItem(PREFIX + id, JSON.stringify(draft));
	else sessionStorage.removeItem(PREFIX + id);
}

// Signing out on purpose deletes the drafts; the end of a session does not.
addEventListener("signed-out", () => {
	for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
});
