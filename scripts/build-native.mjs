// placeholder: the native helper writes this file
console.log('native addon: not built yet');
