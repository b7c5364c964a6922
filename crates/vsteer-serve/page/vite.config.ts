import { readFileSync } from 'node:fs';
import { defineConfig } from 'vite';

// uPlot is the only library in the page. Its licence must stay with every copy.
const licence = readFileSync('node_modules/uplot/LICENSE', 'utf8').trim();

// Paths are relative, so that the page also works below a path of a proxy. Nothing is inlined, because the security policy of
// the service allows no script and no style inside the HTML file.
export default defineConfig({
  base: './',
  build: {
    assetsInlineLimit: 0,
    modulePreload: false,
    // Git keeps dist/.gitignore. The build script in package.json removes the rest.
    emptyOutDir: false,
    target: 'es2022',
    rolldownOptions: { output: { postBanner: `/*! This file contains uPlot.\n${licence}\n*/` } },
  },
});
