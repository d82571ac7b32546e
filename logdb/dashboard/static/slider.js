// The slider shows its version while it moves, and its form is sent when it stops. Without scripts the button does.
for (const form of document.querySelectorAll("form[data-slider]")) {
  const range = form.querySelector("input[type=range]");
  const output = form.querySelector("output");
  form.querySelector("button").hidden = true;
  range.addEventListener("input", () => { output.value = range.value; });
  range.addEventListener("change", () => form.requestSubmit());
}
