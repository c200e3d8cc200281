/** The script of the pages that are shown without a session: keeps the fragment of the address, which names a view. */
const { to } = document.body.dataset;
const { hash } = window.location;
// From another site, browsers send no cookie; from here they do.
if (to !== undefined) window.location.replace(to + hash);
const form = document.querySelector("form");
if (form !== null) form.action += hash;
