// Before the first paint, so that nothing flashes in the other colours.
try {
	const theme = localStorage.getItem("theme");
	if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
	// Without storage the system's colours hold.
}
