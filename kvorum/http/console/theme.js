"use strict"; // before anything is shown, so that nothing changes its colours under the eye
document.documentElement.dataset.theme = localStorage.getItem("kvorum.theme") || "auto";
