; makensis -DVERSION=1.0.0 -DFOLDER=C:\build\photo-lab photo_lab.nsi
Unicode true
Target amd64-unicode
Name "Photo Lab"
OutFile "photo-lab-${VERSION}-setup.exe"
RequestExecutionLevel user
InstallDir "$LOCALAPPDATA\Programs\Photo Lab"
InstallDirRegKey HKCU "Software\Photo Lab" "folder" ; an update goes where the app is
!define KEY "Software\Microsoft\Windows\CurrentVersion\Uninstall\Photo Lab"

Section
  SetOutPath "$INSTDIR"
  ClearErrors
  File /r "${FOLDER}/*.*"
  IfErrors 0 +3 ; without this, a file in use ends with exit code 0
    SetErrorLevel 5
    Quit
  WriteUninstaller "$INSTDIR\uninstall.exe"
  WriteRegStr HKCU "Software\Photo Lab" "folder" "$INSTDIR"
  WriteRegStr HKCU "${KEY}" "DisplayName" "Photo Lab"
  WriteRegStr HKCU "${KEY}" "DisplayVersion" "${VERSION}" ; winget compares it
  WriteRegStr HKCU "${KEY}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${KEY}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  CreateShortcut "$SMPROGRAMS\Photo Lab.lnk" "$INSTDIR\photo-lab.exe"
SectionEnd

Section "Uninstall"
  RMDir /r "$INSTDIR"
  Delete "$SMPROGRAMS\Photo Lab.lnk"
  DeleteRegKey HKCU "${KEY}"
  DeleteRegKey HKCU "Software\Photo Lab"
SectionEnd
