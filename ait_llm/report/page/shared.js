"use strict";
// What all pages share: their data, their words, and copying.

const source = JSON.parse(document.getElementById("report").textContent);
const by = (id) => document.getElementById(id);
// A page's own words: every text that it says itself goes through here, with {0}, {1} for what is filled in.
const say = (text, ...values) => (source.words[text] || text).replace(/\{(\d)\}/g, (_, place) => values[place]);
const isDark = () => document.documentElement.dataset.theme === "dark";
const preferredTheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

async function copy(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = say("copied");
  } catch { // a browser that keeps the clipboard from files
    by("copied").value = text;
    by("copied").hidden = false;
    by("copied").select();
    button.textContent = say("select and copy");
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}
